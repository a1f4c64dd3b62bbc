"""Checks of what a run left behind."""
