"""Tests of rmqha/page."""
