"""Keeping the log itself: cleanup, compaction, audits, repairs."""
