"""Where fedmuster meets other systems."""
