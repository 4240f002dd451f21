"""POP: the broker hands out single messages, and takes back what is not acknowledged in time."""
