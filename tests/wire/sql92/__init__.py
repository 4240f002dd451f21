"""
Filters over properties.
"""
