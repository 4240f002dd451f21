"""Tests of rmqha/nodes."""
