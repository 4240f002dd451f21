"""
Tests of rmqha/metrics.
"""
