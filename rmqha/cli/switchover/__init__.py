"""
C{rmqha switchover}.
"""
