"""Which set of clients is best: exact solvers, annealing, brute force."""
