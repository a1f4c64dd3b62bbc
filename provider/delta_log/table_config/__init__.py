"""Configuration of a table: schema, column mapping, features, properties."""
