"""From a pull to pieces of the log: queue readers, long polling, progress, locks, look-ups."""
