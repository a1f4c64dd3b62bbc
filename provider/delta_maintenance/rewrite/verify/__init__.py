"""Reads new files back and compares them with what was written."""
