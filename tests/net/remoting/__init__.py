"""Tests of L{rmqha.net.remoting}."""
