"""Bins and listings as tasks of a Spark application."""
