"""The sending side of replication in controller mode: an elected master, and the set that it
leads.
"""
