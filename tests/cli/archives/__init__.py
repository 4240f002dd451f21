"""Tests of rmqha/cli/archives."""
