"""Membership of a set whose master a controller elects."""
