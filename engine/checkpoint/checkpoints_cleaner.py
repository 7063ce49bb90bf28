"""Subsumed snapshots on their way to deletion (Flink: ``CheckpointsCleaner``).

Rules
-----
* A subsumed snapshot is looked at when the lowest id that is still valid has passed it, not before.
* One whose files a restored or newer snapshot still uses stays, and is looked at again at the next completion.
* Of those that leave, only what is ours is deleted: never a savepoint, never what was restored without a claim.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Generic, Protocol, TypeVar


class Subsumable(Protocol):
    """What the cleaner needs to know of a snapshot."""

    @property
    def checkpoint_id(self) -> int:
        """Its id."""

    @property
    def may_be_deleted(self) -> bool:
        """Whether it is ours."""


Entry = TypeVar("Entry", bound=Subsumable)


class CheckpointsCleaner(Generic[Entry]):
    """Holds subsumed snapshots until they may go; see the rules at the top of the module."""

    def __init__(self) -> None:
        self._subsumed: list[Entry] = []

    @property
    def waiting_ids(self) -> tuple[int, ...]:
        """Subsumed and still there, in the order of subsumption."""
        return tuple(entry.checkpoint_id for entry in self._subsumed)

    def add(self, subsumed: Iterable[Entry]) -> None:
        """Take over what has been subsumed."""
        self._subsumed += subsumed

    def take_back(self, checkpoint_id: int) -> Entry | None:
        """A subsumed snapshot is needed after all; ``None`` when it is not here (any more)."""
        for position, entry in enumerate(self._subsumed):
            if entry.checkpoint_id == checkpoint_id:
                return self._subsumed.pop(position)
        return None

    def clean(self, up_to: int | None, in_use: Container[int] = ()) -> tuple[int, ...]:
        """Ids to delete now: subsumed ones below ``up_to`` (``None``: all) that nobody uses and that are ours."""
        kept: list[Entry] = []
        leaving: list[Entry] = []
        for entry in self._subsumed:
            stays = (up_to is not None and entry.checkpoint_id >= up_to) or entry.checkpoint_id in in_use
            (kept if stays else leaving).append(entry)
        self._subsumed = kept
        return tuple(entry.checkpoint_id for entry in leaving if entry.may_be_deleted)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(set(self.waiting_ids)) == len(self.waiting_ids), self.waiting_ids

    def fingerprint(self) -> tuple[int, ...]:
        """All state that decides what happens next; what an id may do is told by who added it."""
        return self.waiting_ids
