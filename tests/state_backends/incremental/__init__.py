"""Incremental and native snapshots, and restores from them, over scripted files and over real stores."""
