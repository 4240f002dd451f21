"""
Jobs over logs: export, stream, verify, rebuild, stats, replay, index, rewind.
"""
