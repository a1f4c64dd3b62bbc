"""Runs of maintenance, and what a test does meanwhile."""
