"""
Transports and endpoints.
"""
