"""The league: every policy, or a stranger's, in the same frozen settings (docs/league.md)."""
