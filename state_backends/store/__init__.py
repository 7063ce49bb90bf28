"""Keyed state of one subtask over an ordered store, whichever kind of store that is: ``keyed_backend`` over
``parts``, ``entries`` and ``timers``. ``pinned`` takes full snapshots,
``native_restore`` opens the files of a store again, and ``meta`` keeps what these files do not say themselves.
"""

from __future__ import annotations

from state_backends.store.keyed_backend import StoreKeyedStateBackend as StoreKeyedStateBackend
