"""Tests of rmqha/cli/nodes."""
