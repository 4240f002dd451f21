"""Tests of L{rmqha.roles.host}."""
