"""The whole way of messages: from a client through a pair of brokers into a table, in one go."""
