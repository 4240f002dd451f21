"""C{broker.conf} to frozen settings."""
