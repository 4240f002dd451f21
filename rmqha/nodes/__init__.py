"""Asking nodes how they are, and what of it matters to people."""
