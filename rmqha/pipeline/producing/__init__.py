"""
Sending messages to brokers without a reactor: whoever sends waits for the answer.
"""
