"""Real processes, real faults; README.md says which is where."""
