"""What a monitor reads of a node: C{GET /metrics} in Prometheus' text format."""
