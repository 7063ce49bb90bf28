"""Claims about channels, and about both of their ends."""
