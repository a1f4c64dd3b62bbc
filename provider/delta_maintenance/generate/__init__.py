"""GENERATE: writes manifests in Hive's symlink format, for readers that do not know Delta tables."""
