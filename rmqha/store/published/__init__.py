"""What a node tells those who read its files: how far the log is final, and where records begin."""
