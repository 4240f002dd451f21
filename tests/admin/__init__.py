"""Tests of rmqha/admin."""
