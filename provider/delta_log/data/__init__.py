"""Data files and deletion vectors."""
