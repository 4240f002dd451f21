"""Rows of a replicated log for PySpark and Arrow, straight from the store's files."""
