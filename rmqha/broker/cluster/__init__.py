"""A broker among others: registration, ids, and a slave's copies of its master's tables."""
