"""The receiving side: find common ground with a master, follow it, and stop loudly where that is
wrong.
"""
