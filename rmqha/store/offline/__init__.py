"""A stopped or damaged store, looked at and mended without a node."""
