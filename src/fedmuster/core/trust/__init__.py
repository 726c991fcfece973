"""What clients report of themselves, and what of it is believed."""
