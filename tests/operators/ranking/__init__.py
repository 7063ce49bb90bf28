"""Deduplication and top-n."""
