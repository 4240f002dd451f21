"""Commands that ask running nodes."""
