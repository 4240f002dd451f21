"""
Tests of rmqha/tier.
"""
