"""
Tests of rmqha/admin.
"""
