"""Claims about the checkpoint protocols: what each promises and which handler it gives a task."""
