"""Real nodes as child processes, bad networks between them, and how they are asked."""
