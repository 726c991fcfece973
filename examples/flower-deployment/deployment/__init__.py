"""The quickstart's app, on clients of different speeds."""
