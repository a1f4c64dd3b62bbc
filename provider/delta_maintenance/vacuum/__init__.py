"""VACUUM: files that no version in the retention needs."""
