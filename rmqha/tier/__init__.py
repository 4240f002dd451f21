"""A log's full files in an object store: put there, and read from there beside those of a store."""
