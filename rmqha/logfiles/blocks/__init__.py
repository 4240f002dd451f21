"""
Reading a log file front to back, and what that does to others on the host.
"""
