"""ANALYZE: computes the statistics of files anew where the log lacks them, without touching the files."""
