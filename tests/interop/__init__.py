"""Real Apache RocketMQ brokers beside our nodes: C{make interop}."""
