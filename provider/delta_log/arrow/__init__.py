"""Arrow helpers that know nothing of Delta."""
