"""A node's way to its master: where that is, and whether it may be followed."""
