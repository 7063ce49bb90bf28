"""The command line with stores so small that a short run makes many files, compacts them, and materialises.

``python -m tests.crash.small_stores run …`` is ``weir run …`` in everything else: no option sets these sizes.
"""

from __future__ import annotations

from engine.cli import main
from state_backends.api import state_backend
from state_backends.lsm import LsmStateBackend


class SmallLsmStateBackend(LsmStateBackend):
    """As ``--state-backend lsm`` makes it, but for its sizes."""

    def __init__(self, incremental: bool = False) -> None:
        super().__init__(incremental, memtable_bytes=40_000, cache_bytes=100_000, level0_trigger=3)


def small_rocksdb(incremental: bool = False) -> state_backend.StateBackend:
    """As ``--state-backend rocksdb`` makes it, but for its sizes."""
    from state_backends.rocksdb import RocksDBStateBackend

    return RocksDBStateBackend(incremental, memtable_bytes=128_000, l0_trigger=3)


if __name__ == "__main__":
    state_backend._MODULES["lsm"] = ("tests.crash.small_stores", "SmallLsmStateBackend")
    state_backend._MODULES["rocksdb"] = ("tests.crash.small_stores", "small_rocksdb")
    main(prog_name="weir")
