"""The commands that keep a log elsewhere than in a store, and make a store of it again."""
