"""Claims about the barrier handlers, one at a time and against each other."""
