"""Real RocketMQ brokers, tools and clients, fetched from the registries and run on loopback."""
