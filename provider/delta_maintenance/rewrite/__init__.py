"""Rewrites one bin: reads its source files, writes new data files and leaves a manifest. Runs on every engine."""
