"""Waits for an external system in wall time: the time that a database server needs to restart is unknown.

Virtual time stands still meanwhile. This is the border to the real world; no other code belongs here.
"""

from __future__ import annotations

import time


def wait_s(seconds: float) -> None:
    """Return after so many seconds of wall time."""
    time.sleep(seconds)
