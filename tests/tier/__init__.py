"""Tests of rmqha/tier."""
