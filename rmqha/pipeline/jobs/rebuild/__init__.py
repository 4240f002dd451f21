"""
Consume queues made anew from a log, by many tasks.
"""
