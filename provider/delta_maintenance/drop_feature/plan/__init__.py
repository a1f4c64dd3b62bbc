"""What has to be done before a feature can leave a protocol, and what the table is without it: pure functions."""
