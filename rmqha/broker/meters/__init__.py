"""How much a broker does, and how long it takes."""
