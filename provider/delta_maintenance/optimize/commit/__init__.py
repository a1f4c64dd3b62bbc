"""Finished bins become commits: in batches, against other writers, and over several tries."""
