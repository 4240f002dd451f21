"""Tests of POP."""
