"""The tables that outlive a broker's process: topics, subscription groups, consumer offsets."""
