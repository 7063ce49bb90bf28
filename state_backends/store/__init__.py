"""Keyed state of one subtask over an ordered store of any kind: ``keyed_backend`` over ``parts``, ``entries`` and
``timers``. ``pinned`` takes full snapshots, ``native_restore`` opens the files of a store again, and ``meta`` keeps
the meaning of the rows, which these files do not have.
"""

from __future__ import annotations

from state_backends.store.keyed_backend import StoreKeyedStateBackend as StoreKeyedStateBackend
from state_backends.store.meta import StoreMeta as StoreMeta
