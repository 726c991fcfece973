"""Who is there, who is busy, whom the policy chooses, and who has paid."""
