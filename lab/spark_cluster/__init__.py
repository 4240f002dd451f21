"""Spark's own cluster on this machine: a master, workers and a Connect server on loopback."""
