"""What is unknown: means, speeds, linear models, and how sure we are."""
