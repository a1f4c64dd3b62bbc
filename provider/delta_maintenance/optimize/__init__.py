"""OPTIMIZE and REORG PURGE: fewer, larger files, and rows of deletion vectors gone."""
