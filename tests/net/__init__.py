"""
Tests of rmqha/net.
"""
