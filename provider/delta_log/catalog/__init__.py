"""Tables by name: where a catalog says that a table is."""
