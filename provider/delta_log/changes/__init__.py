"""The rows that commits inserted, deleted and updated."""
