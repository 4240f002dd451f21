"""The page of a node."""
