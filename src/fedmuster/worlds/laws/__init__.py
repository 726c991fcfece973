"""Latency laws: how long clients take, and exact expectations of it."""
