"""The coordinator's view of a transactional id: a plain value, to which changes are applied.

A name is the result of all its changes, in order. A log on disk stores every change before it applies it, and restores
its names from these changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from operators.log.port.transaction_log import COMMITTED

REGISTERED, BEGUN, IS_PREPARED, ENDED, FORGOTTEN = "registered", "begun", "prepared", "ended", "forgotten"

Change = tuple[Any, ...]
"""A change of a name, as plain values: ``(registered, id, epoch, timeout_ns)``, ``(begun, id, epoch, at_ns)``,
``(prepared, id, epoch, note)``, ``(ended, id, epoch, outcome, note)`` and ``(forgotten, id, epoch)``."""


class EpochRun(NamedTuple):
    """Transactions of successive epochs that ended alike."""

    first: int
    last: int
    outcome: str


class Outcomes:
    """How the transactions of one name ended, by epoch. Kept as long as the name, because a repeated commit may come
    late. Most transactions end alike, so even an old name needs little space."""

    __slots__ = ("newest_note", "runs")

    def __init__(self, runs: Iterable[EpochRun] = (), newest_note: int | None = None) -> None:
        """``newest_note``: the highest note of the committed ones."""
        self.runs, self.newest_note = list(runs), newest_note

    def add(self, epoch: int, outcome: str, note: int | None) -> None:
        """The transaction of ``epoch``, which is above all known ones, has ended."""
        assert not self.runs or self.runs[-1].last < epoch, f"epoch {epoch} has ended twice"
        if self.runs and self.runs[-1].last == epoch - 1 and self.runs[-1].outcome == outcome:
            self.runs[-1] = self.runs[-1]._replace(last=epoch)
        else:
            self.runs.append(EpochRun(epoch, epoch, outcome))
        if outcome == COMMITTED and note is not None:
            self.newest_note = note if self.newest_note is None else max(note, self.newest_note)

    def get(self, epoch: int) -> str | None:
        """How the transaction of ``epoch`` ended, ``None`` if it has not."""
        at = bisect_right(self.runs, epoch, key=_first_of) - 1
        return self.runs[at].outcome if at >= 0 and epoch <= self.runs[at].last else None

    @property
    def commits(self) -> int:
        """How many of them were committed."""
        return sum(run.last - run.first + 1 for run in self.runs if run.outcome == COMMITTED)

    @property
    def last_epoch(self) -> int:
        """The highest epoch that has ended, -1 if none has."""
        return self.runs[-1].last if self.runs else -1

    def plain(self) -> tuple[Any, ...]:
        """As plain values."""
        return [tuple(run) for run in self.runs], self.newest_note


def _first_of(run: EpochRun) -> int:
    return run.first


@dataclass(slots=True)
class Name:
    """A transactional id."""

    epoch: int
    timeout_ns: int
    state: str | None = None
    """``open`` or ``prepared``; ``None`` between transactions."""
    begun_ns: int = 0
    note: int | None = None
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records by partition."""
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    ended: Outcomes = field(default_factory=Outcomes)
    used_ns: int = 0
    """When its last transaction ended, or when a later attempt took the name over."""


def state_of(name: Name) -> object:
    """The values that decide what a name may do next, as plain values."""
    return (name.epoch, name.state, name.note, tuple(sorted(name.written.items())), repr(name.ended.plain()))
