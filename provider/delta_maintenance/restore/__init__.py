"""RESTORE: makes a table what it was at an earlier version, as a new version."""
