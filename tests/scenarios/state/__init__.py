"""State on all backends: rescaled, shared between checkpoints, recovered from local copies."""
