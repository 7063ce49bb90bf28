"""Keyed state of one subtask in live dicts, one per key group: ``backend`` is the setting of a job, ``keyed_backend``
the state of one subtask, over ``state_table`` and ``entries``. ``pinned`` and ``incremental_groups`` take
snapshots, ``expiry`` removes what has expired, ``column_states`` keeps reducing state in arrays.
"""

from __future__ import annotations

from state_backends.heap.backend import HeapStateBackend as HeapStateBackend
from state_backends.heap.keyed_backend import HeapKeyedStateBackend as HeapKeyedStateBackend
