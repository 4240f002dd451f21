"""Records of the commit log, one at a time: their layout, and bytes to values and back."""
