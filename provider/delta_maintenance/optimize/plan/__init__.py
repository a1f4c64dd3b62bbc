"""What OPTIMIZE and REORG PURGE would do: pure functions of a snapshot and options."""
