"""Row groups that are copied without decoding: which, and what their statistics say."""
