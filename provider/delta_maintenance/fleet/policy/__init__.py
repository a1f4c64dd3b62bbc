"""The policy of a fleet: which tables, what healthy means, what it may cost, and how careful a run is."""
