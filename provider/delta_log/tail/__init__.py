"""Following a log from version to version."""
