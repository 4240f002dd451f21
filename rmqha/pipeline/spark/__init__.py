"""The data source for PySpark: batches, streams, writes, and a session to run them in."""
