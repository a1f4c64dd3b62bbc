"""What VACUUM may delete: pure functions of the log and a listing."""
