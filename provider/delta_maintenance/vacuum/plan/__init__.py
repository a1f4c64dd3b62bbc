"""Deciding what VACUUM may delete, and why: pure functions of the log and a listing."""
