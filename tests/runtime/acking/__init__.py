"""Claims about mode ``acking``."""
