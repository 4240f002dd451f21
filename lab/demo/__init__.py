"""The demo: C{make demo}."""
