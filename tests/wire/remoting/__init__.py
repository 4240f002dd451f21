"""Tests of the remoting codec."""
