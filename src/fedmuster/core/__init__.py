"""The language of the house: records, the policy protocol, the selector. Needs numpy only."""
