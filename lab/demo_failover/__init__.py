"""The demo of a set whose master is killed: C{make demo-failover}."""
