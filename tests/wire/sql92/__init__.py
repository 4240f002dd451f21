"""Filters over properties."""
