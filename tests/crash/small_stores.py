"""The command line with stores so small that a short run makes many files, compacts them, and materialises.

``python -m tests.crash.small_stores run …`` otherwise equals ``weir run …``: no option sets these sizes.
"""

from __future__ import annotations

from engine.cli import main
from state_backends import lsm, rocksdb
from state_backends.api import StateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.rocksdb import RocksDBStateBackend


class SmallLsmStateBackend(LsmStateBackend):
    """The backend of ``--state-backend lsm``, with other sizes."""

    def __init__(self, incremental: bool = False) -> None:
        super().__init__(incremental, memtable_bytes=40_000, cache_bytes=100_000, level0_trigger=3)


def small_rocksdb(incremental: bool = False) -> StateBackend:
    """The backend of ``--state-backend rocksdb``, with other sizes."""
    return RocksDBStateBackend(incremental, memtable_bytes=128_000, l0_trigger=3)


def make_stores_small() -> None:
    """From now on the names ``lsm`` and ``rocksdb`` stand for the small ones."""
    lsm.LsmStateBackend = SmallLsmStateBackend  # type: ignore[misc]
    rocksdb.RocksDBStateBackend = small_rocksdb  # type: ignore[misc, assignment]


if __name__ == "__main__":
    make_stores_small()
    main(prog_name="weir")
