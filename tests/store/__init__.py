"""
Tests of rmqha/store.
"""
