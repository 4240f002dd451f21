"""What tests, demo and bench share."""
