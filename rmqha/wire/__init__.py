"""Sans-IO codecs: bytes in, events out."""
