"""Claims about the checkpoint coordinator and its parts."""
