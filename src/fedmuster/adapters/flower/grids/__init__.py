"""Flower's grid as others see it: the cohort alone, and with a clock."""
