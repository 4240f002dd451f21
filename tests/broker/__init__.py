"""Tests of L{rmqha.broker}."""
