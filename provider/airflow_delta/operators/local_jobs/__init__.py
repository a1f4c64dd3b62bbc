"""Operators whose jobs have no use for Spark: their work is in the log, in listings, or in footers."""
