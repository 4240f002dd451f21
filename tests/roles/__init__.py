"""Tests of L{rmqha.roles}."""
