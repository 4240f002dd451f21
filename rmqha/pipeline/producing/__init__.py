"""
Sending messages to brokers without a reactor: the caller waits for the answer.
"""
