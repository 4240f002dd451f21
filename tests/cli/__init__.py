"""Tests of L{rmqha.cli}."""
