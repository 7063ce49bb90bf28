"""A clock that tests set, and the backends that state with time-to-live is tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state_backends.api import BackendEnvironment, KeyedStateBackend, StateBackend
from state_backends.base import LONG, KeyGroupRange, StateTtlConfig, StateVisibility, UpdateType
from state_backends.changelog import ChangelogStateBackend
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend

GROUPS = 8

ALL_SETTINGS = [
    StateTtlConfig(100, update_type, visibility) for update_type in UpdateType for visibility in StateVisibility
]


class Clock:
    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def tiny_lsm() -> StateBackend:
    """An LSM backend that flushes and compacts all the time."""
    return LsmStateBackend(memtable_bytes=512, block_bytes=64, level0_trigger=2)


BACKENDS: dict[str, Callable[[], StateBackend]] = {
    "heap": HeapStateBackend,
    "lsm": tiny_lsm,
    "changelog": lambda: ChangelogStateBackend(HeapStateBackend()),
}


def environment(clock: Clock, first: int = 0, last: int = GROUPS - 1, **more: Any) -> BackendEnvironment:
    """An environment over some key groups, on a fresh memory file system."""
    groups = KeyGroupRange(first, last)
    return BackendEnvironment(LONG, GROUPS, groups, MemoryFileSystem(), "/work", "unique", now_ms=clock, **more)


def backend(name: str, clock: Clock, first: int = 0, last: int = GROUPS - 1) -> KeyedStateBackend:
    return BACKENDS[name]().create_keyed_backend(environment(clock, first, last))
