"""Claims about the pure machines of engine.checkpoint."""
