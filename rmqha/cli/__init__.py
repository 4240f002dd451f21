"""
The C{rmqha} command.
"""
