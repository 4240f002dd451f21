"""Stores as a reader outside of any node sees them: files, positions, ranges, selected records."""
