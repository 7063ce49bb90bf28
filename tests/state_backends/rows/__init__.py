"""Keyed state as rows: their layout, and incremental uploads over scripted files and over real stores."""
