"""The commands C{rmqha controller ...}."""
