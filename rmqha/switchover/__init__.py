"""A planned change of roles in a classic pair: its steps, over the two client ports."""
