"""What a RESTORE adds, removes and sets: pure functions."""
