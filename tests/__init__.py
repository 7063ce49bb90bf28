"""Weir's own tests; `tests/README.md` says which directory a test belongs to. Never installed."""
