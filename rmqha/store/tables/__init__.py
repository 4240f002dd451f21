"""The tables beside a log, as files: their checksums, the journal of consumer offsets, and two
nodes' tables made one.
"""
