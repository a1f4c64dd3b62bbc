"""Commits: bodies, conflicts, rebasing."""
