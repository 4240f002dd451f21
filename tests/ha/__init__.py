"""Replication, both sides of it."""
