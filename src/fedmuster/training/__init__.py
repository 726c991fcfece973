"""Real models on real data, trained by the clients that a policy selects."""
