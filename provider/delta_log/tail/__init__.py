"""Following a log: the commits after a version, in order, and what each did."""
