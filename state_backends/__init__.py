"""Keyed and operator state, snapshots and checkpoint storage, behind one file-system port.

This room knows nothing of the engine and is usable and testable alone. Public names are loaded on
first use, so that importing the package costs nothing.
"""

from __future__ import annotations
