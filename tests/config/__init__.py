"""Tests of L{rmqha.config}."""
