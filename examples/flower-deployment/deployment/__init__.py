"""A Flower app with numpy alone: handwritten digits, on clients of different speeds."""
