"""RocketMQ's master/slave high availability in Python on Twisted."""
