"""Privacy budgets: schedules, noise, and a ledger that survives crashes."""
