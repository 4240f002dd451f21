"""
Measurements: L{bench.__main__} runs them all.
"""
