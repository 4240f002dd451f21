"""Delayed messages: levels, their schedule, and how far each is delivered."""
