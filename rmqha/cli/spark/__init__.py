"""The commands C{rmqha spark ...}."""
