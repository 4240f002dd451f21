"""Tests of L{rmqha.namesrv}."""
