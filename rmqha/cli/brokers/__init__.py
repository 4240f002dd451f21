"""C{rmqha topic}, C{group}, C{offset} and C{message}: the daily work with running brokers."""
