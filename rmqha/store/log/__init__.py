"""The commit log: its end, its recovery, its flushing, its cutting and its ageing."""
