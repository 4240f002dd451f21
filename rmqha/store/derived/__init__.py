"""What follows from the log: consume queues, the index, and look-ups through them."""
