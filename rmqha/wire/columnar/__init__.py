"""Many records at once, as numpy and Arrow columns, by kernels in two equal forms."""
