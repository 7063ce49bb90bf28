"""Claims about the checkpoint protocols: the promise of each and the handler it gives a task."""
