"""The state backends that a job can use, by name.

| name          | live state                    | checkpoints                                                        |
|---------------|-------------------------------|--------------------------------------------------------------------|
| ``heap``      | Python objects                | full; incremental: key groups whose bytes have changed             |
| ``lsm``       | a log-structured store        | full, in canonical format; incremental: new SST files              |
| ``rocksdb``   | the real RocksDB (an extra)   | as ``lsm``                                                         |
| ``changelog`` | any of them (heap if not told)| a log of changes, and materialised snapshots of the backend below  |

``changelog`` may name the backend below: ``changelog:lsm``. A backend is loaded when it is asked for.
"""

from __future__ import annotations

from state_backends.api import StateBackend
from state_backends.base import StateArgumentError

_CHANGELOG = "changelog"

STATE_BACKEND_NAMES = ("heap", "lsm", "rocksdb", _CHANGELOG)
"""What :func:`state_backend_named` knows."""


def state_backend_named(name: str, *, incremental: bool = False) -> StateBackend:
    """The state backend of that name, with its default settings.

    :raises StateArgumentError: when there is none of that name, or the package that it needs is not installed
    """
    if name == _CHANGELOG or name.startswith(f"{_CHANGELOG}:"):
        inner = state_backend_named(name.partition(":")[2] or "heap", incremental=incremental)
        if inner.name.startswith(_CHANGELOG):
            raise StateArgumentError(f"state backend {name!r}: a changelog cannot stand over a changelog.")
        from state_backends.changelog import ChangelogStateBackend

        return ChangelogStateBackend(inner)
    if name == "heap":
        from state_backends.heap import HeapStateBackend

        return HeapStateBackend(incremental=incremental)
    if name == "lsm":
        from state_backends.lsm import LsmStateBackend

        return LsmStateBackend(incremental=incremental)
    if name == "rocksdb":
        from state_backends.rocksdb import RocksDBStateBackend

        return RocksDBStateBackend(incremental=incremental)
    raise StateArgumentError(
        f"state backend {name!r} is none of {', '.join(STATE_BACKEND_NAMES)} "
        f"({_CHANGELOG}:NAME says what a changelog stands over)."
    )
