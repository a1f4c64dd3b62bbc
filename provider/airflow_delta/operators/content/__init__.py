"""Operators that change what a table holds, or who can read it."""
