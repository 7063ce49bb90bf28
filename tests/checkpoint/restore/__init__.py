"""Claims about recovery from a failure: restarts, and which subtask gets which state."""
