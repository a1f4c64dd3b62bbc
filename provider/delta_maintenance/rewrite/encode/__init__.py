"""Rows to Parquet by Arrow: settings, codecs, dictionaries and statistics."""
