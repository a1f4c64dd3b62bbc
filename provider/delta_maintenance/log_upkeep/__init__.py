"""Checkpoints, log compaction and log cleanup."""
