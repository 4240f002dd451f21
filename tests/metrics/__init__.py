"""Tests of rmqha/metrics."""
