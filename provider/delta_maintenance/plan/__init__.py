"""What to do about a table: pure functions of a snapshot, options and the time. A dry run is a plan,
printed."""
