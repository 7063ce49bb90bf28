"""Waiting for a system outside, in wall time: a database server that restarts takes as long as it takes.

Virtual time stands still meanwhile. This is the border to the real world, and nothing else belongs here.
"""

from __future__ import annotations

import time


def wait_s(seconds: float) -> None:
    """Return after so many seconds of wall time."""
    time.sleep(seconds)
