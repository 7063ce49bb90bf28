"""Logs in files: recovery, batches, promises, consumer groups."""
