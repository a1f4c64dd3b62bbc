"""Rows in the order of a layout, by way of buckets on disk or a shuffle."""
