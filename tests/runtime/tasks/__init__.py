"""Claims about tasks and their parts."""
