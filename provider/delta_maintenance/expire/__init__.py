"""EXPIRE: rows leave a table when a column says that they are old enough."""
