"""The league: every policy, or your own, in the same frozen settings (docs/league.md)."""
