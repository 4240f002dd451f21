"""Access control: who may ask what of a broker."""
