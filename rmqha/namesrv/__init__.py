"""The name server: who has which topic, and where."""
