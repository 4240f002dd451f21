"""
Tests of rmqha/page.
"""
