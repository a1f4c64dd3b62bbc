"""Partition predicates, and grouping files by partition."""
