"""Listing a table's directory, the second unit of work that is distributed."""
