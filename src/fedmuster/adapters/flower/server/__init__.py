"""Muster: our methods in place of a strategy's, while the strategy's own loop runs."""
