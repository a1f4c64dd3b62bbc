"""Looks whether jobs could do their work: what is installed, what the store allows, and what a Spark cluster has."""
