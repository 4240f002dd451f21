"""Asking brokers and name servers without a reactor: the caller waits for the answer."""
