"""Tests of L{rmqha.controller}."""
