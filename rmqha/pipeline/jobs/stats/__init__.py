"""What a log holds, counted and drawn."""
