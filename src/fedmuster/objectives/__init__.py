"""What a good cohort is."""
