"""Measurements: L{lab.bench.__main__} runs them all."""
