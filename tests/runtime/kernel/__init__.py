"""Claims about virtual time and choices."""
