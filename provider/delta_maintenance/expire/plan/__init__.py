"""Plans an EXPIRE: pure functions of a snapshot and a time."""
