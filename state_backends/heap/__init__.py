"""Keyed state of one subtask in live dicts, one per key group: ``keyed_backend`` over ``state_table`` and ``entries``.
``incremental_groups`` takes incremental snapshots, ``expiry`` removes expired state, ``column_states`` keeps reducing
state in arrays.
"""

from __future__ import annotations

from state_backends.heap.keyed_backend import (
    HeapKeyedStateBackend as HeapKeyedStateBackend,
    HeapStateBackend as HeapStateBackend,
)
