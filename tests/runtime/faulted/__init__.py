"""Claims about what a fault does to a run."""
