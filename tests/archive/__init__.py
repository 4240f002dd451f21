"""Tests of L{rmqha.archive}."""
