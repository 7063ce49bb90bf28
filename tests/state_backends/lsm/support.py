"""Shared pieces: tiny options so that everything happens, an executor that waits, a history of writes and its model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from state_backends.base import InlineExecutor
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.lsm import LsmOptions, LsmStore, LsmStoreKind
from state_backends.lsm.version import FileMeta
from tests.state_backends.support import DeferredExecutor

TINY: dict[str, Any] = {
    "memtable_bytes": 200,
    "block_bytes": 48,
    "cache_bytes": 600,
    "level0_trigger": 3,
    "level_multiplier": 2,
    "max_levels": 5,
    "manifest_bytes": 3000,
    "max_open_files": 2,
}
"""Every few writes a flush, every few flushes a compaction, three levels in use with a hundred entries."""


def tiny(**changes: Any) -> LsmOptions:
    return LsmOptions(**{**TINY, **changes})


def open_store(
    fs: FileSystem | None = None,
    directory: str = "/store",
    unique: str = "a",
    executor: InlineExecutor | DeferredExecutor | None = None,
    **changes: Any,
) -> LsmStore:
    kind = LsmStoreKind(tiny(**changes), executor)
    return kind.open(MemoryFileSystem() if fs is None else fs, directory, unique)


def key(number: int) -> bytes:
    return b"k%04d" % number


def content(store: LsmStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"", None))


def mixed(count: int) -> list[int]:
    """The numbers below a count, a prime or so, in an order in which any few of them span most of the rest."""
    return [number * 37 % count for number in range(count)]


def fill(store: LsmStore, numbers: Iterable[int], mark: str = "v") -> dict[bytes, bytes]:
    """Put entries, and return them."""
    entries = {key(number): f"{mark}{number}".encode() * 2 for number in numbers}
    for one, value in entries.items():
        store.put(one, value)
    return entries


def names(fs: FileSystem, directory: str = "/store", suffix: str = ".sst") -> list[str]:
    return [name for name in fs.list_dir(directory) if name.endswith(suffix)]


def meta(number: int, first: int, last: int, size: int = 100, **changes: Any) -> FileMeta:
    """The description of a file that does not exist."""
    fields: dict[str, Any] = {"entries": 1, "tombstones": 0, "range_tombstones": 0, **changes}
    return FileMeta(
        name=f"{number:06d}-x.sst", size_bytes=size, checksum=number, smallest=key(first), largest=key(last), **fields
    )
