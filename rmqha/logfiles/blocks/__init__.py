"""A file of a log, open wherever it lies, read front to back, and what that does to others on the
host.
"""
