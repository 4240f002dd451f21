"""Timer messages: each is delivered at a time of its own."""
