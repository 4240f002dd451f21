"""Who is connected, and what it produces and consumes."""
