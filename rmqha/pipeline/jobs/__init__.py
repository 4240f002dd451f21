"""Jobs over logs: export, stream, verify, stats, replay, index, rewind."""
