"""Claims about the part of a subtask in a checkpoint."""
