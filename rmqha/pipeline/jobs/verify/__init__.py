"""Are copies of one log the same, and which records are not?"""
