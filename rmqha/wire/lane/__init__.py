"""Codecs for what comes in masses, a run of frames a call."""
