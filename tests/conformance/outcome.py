"""What a replay of one vector may say besides its mismatches."""

from __future__ import annotations


class Skip(Exception):
    """The vector cannot be replayed; the message says why. A skip is reported, never counted as passed."""
