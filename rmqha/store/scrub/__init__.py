"""Reading a log again that was written long ago, to see whether the disk still has it."""
