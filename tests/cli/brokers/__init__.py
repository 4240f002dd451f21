"""Tests of rmqha/cli/brokers."""
