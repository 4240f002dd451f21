"""C{rmqha switchover}."""
