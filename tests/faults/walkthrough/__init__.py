"""What a user of two pairs sees, chapter by chapter, with a stock client."""
