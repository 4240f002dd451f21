"""What stands around rmqha and is not shipped: demos, clusters to look at, benches, and the harness
that they and the tests are made with.
"""
