"""Tests of rmqha/net."""
