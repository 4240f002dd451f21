"""TLS of all connections: what is read from files, who is believed, and what a refusal means."""
