"""Repairing a damaged log with the bytes of a replica that has them whole."""
