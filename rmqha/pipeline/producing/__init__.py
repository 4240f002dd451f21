"""Sending messages to brokers, by threads that wait for the answers."""
