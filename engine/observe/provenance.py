"""The port through which a run reports causes and effects. Without a listener, nothing is built differently.

Rules for the runtime, which calls it.

* A *cause* is a value that the other side gives out; the runtime only carries it along with records, and hands it back.
* A task handles records of one cause at a time. Everything an operator emits meanwhile has that cause. Records it emits
  at another time (a timer, a window that ends, a batch that is complete) are caused by its own state. The operator
  reports the key, and a new cause is given out.
* Sources emit one record at a time: each is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from engine.observe.trace_events import Instrument
    from state_backends.base import KeyType

Cause = Any
"""Opaque to the runtime."""

SOURCE, KEYED, STATE, SINK, PLAIN = "source", "keyed", "state", "sink", "plain"
"""An operator's role for effects: it reads records; it keeps state per key; it keeps state of another kind; it makes
effects visible; or none of these, so that effects only pass through it."""

COMMITS, AT_ONCE = "commits", "at once"
"""When a reader sees the records of a sink: once a checkpoint that covers them is complete, or as they come."""

INPUT, OUTPUT = "input", "output"
"""The side of a channel on which a record in flight was stored."""


class OperatorFacts(NamedTuple):
    """One operator of a task. ``role``: its role for effects; ``exposes``: when readers see the records of a sink;
    ``key_type``: declared type of its keys; ``is_last``: whether no other operator gets records from it;
    ``takes_summaries``: whether a record of its input stands for all records of the emission that it came with."""

    uid: str
    name: str
    role: str
    exposes: str = AT_ONCE
    key_type: KeyType | None = None
    is_last: bool = False
    takes_summaries: bool = False


class TaskFacts(NamedTuple):
    """One task in one attempt."""

    task: str
    vertex: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    incarnation: int
    operators: tuple[OperatorFacts, ...]


class Lineage(Protocol):
    """Takes an operator's reports on records that it emits from its own state."""

    def emitting(self, key: Any, namespace: Any = None) -> None:
        """Records emitted until :meth:`emitted` come from the state of ``key`` (and of a window, say)."""

    def emitted(self) -> None:
        """Those records have been emitted."""

    def waits(self, records: int, namespace: Any = None) -> None:
        """This many of the records in hand wait in the operator's state, to be emitted together, in some form, from
        that namespace and no key."""


class TaskProvenance(Protocol):
    """Takes the reports of one task in one attempt."""

    def restored(self, checkpoint_id: int | None) -> None:
        """The task starts, from this checkpoint or from nothing."""

    def lineage(self, uid: str) -> Lineage:
        """For the operator of that uid."""

    def read(self, uid: str, split: str, due_ns: int | None) -> None:
        """A source is about to emit the next record of a split; the task handles that record from now on. ``due_ns``:
        when it was due, if the source knows a time for it."""

    def handles(self, cause: Cause, keys: Sequence[Any] | None, records: int) -> None:
        """Records of one cause have come to the head of the chain. ``keys``: theirs, on a keyed stream."""

    def handled(self) -> None:
        """The task is between two records."""

    def reaches(self, uid: str, values: Sequence[Any]) -> None:
        """Records of the present cause have come to an operator with state of its own, or to a sink."""

    def emits(self, uid: str) -> bool:
        """An operator emits records. Returns whether :meth:`emitted` must be called after that."""

    def emitted(self) -> None:
        """The records that the operator has emitted from its own state have gone down the chain."""

    @property
    def cause(self) -> Cause:
        """The cause of the records being emitted."""

    def snapshot(self, checkpoint_id: int) -> None:
        """All state of the task becomes part of a checkpoint."""

    def stored(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int, causes: list[Cause]) -> None:
        """Records in flight become part of a checkpoint: the cause of each, in their order."""


class Provenance(Protocol):
    """Takes the reports of a run."""

    def task(self, facts: TaskFacts, now_ns: Callable[[], int]) -> TaskProvenance:
        """A task is built. ``now_ns``: tells virtual time."""

    def in_flight(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int) -> Sequence[Cause] | None:
        """The causes of records in flight of a checkpoint, in the order in which they were stored; ``None``: they are
        not known."""

    @property
    def observe(self) -> Instrument | None:
        """Takes the events of the trace, if they are wanted."""
