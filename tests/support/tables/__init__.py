"""Tables and logs for tests."""
