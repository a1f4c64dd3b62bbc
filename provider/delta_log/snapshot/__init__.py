"""One version of a table."""
