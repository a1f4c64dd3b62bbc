"""Repair: finds files that the log names and the store lacks, and takes them out of the log on request."""
