"""
Tests of rmqha/nodes.
"""
