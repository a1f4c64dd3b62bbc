"""Commits: bodies, conflicts, rebase, and what follows a commit."""
