"""Claims about the settings of a run."""
