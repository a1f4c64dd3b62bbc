"""Stores without a conditional put, with a lock table in DynamoDB."""
