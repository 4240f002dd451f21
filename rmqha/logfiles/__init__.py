"""The files of a log as everybody reads them, node, tools and Spark: which there are, how records
follow each other, where the log ends, and what lies beside it for readers.
"""
