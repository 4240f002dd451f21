"""What stands around rmqha and is not shipped: demos, clusters, benches, and their harness."""
