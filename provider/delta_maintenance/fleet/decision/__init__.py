"""What a run of a fleet does, in which order, and for everything else why not: pure functions of facts, policy, history and time."""
