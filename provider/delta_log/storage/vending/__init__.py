"""Catalogs with a REST interface: what they know of a table, and credentials for its store that they give out."""
