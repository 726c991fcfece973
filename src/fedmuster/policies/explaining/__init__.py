"""Rules that explanations of several policies share."""
