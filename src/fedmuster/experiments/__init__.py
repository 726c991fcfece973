"""Specs, runs and their journals."""
