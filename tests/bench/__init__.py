"""
Tests for L{bench}.
"""
