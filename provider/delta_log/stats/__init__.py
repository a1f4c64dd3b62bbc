"""Statistics of data files."""
