"""What came back, told apart, and what of it is believed."""
