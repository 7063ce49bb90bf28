"""Record acking: the pure machines, alone and against models."""
