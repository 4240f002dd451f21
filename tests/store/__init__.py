"""Tests of rmqha/store."""
