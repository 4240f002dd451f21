"""Tests for L{lab.bench}."""
