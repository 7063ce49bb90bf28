"""Claims about what comes after a failure: restarts, and who gets which state."""
