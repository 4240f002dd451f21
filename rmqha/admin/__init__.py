"""What a node tells over HTTP."""
