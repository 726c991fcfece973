"""A Flower app for tests of what happens around training: the training itself is nothing."""
