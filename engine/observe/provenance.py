"""The port through which a run says what caused what. With nobody attached, nothing is built differently.

Rules for whoever calls.

* A *cause* is whatever the other side gives out; the runtime only carries it along with records, and hands it back.
* A task handles records of one cause at a time. Whatever an operator emits meanwhile has that cause. What it emits
  outside of that (a timer, a window that ends, a batch that is complete) is caused by its own state: it says of which
  key, and a new cause is given out.
* Sources emit one record at a time: each is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from engine.observe.trace_events import TraceEvent
    from state_backends.base import KeyType

Cause = Any
"""Opaque to the runtime."""

SOURCE, KEYED, STATE, SINK, PLAIN = "source", "keyed", "state", "sink", "plain"
"""What an operator is to effects: it reads records; it keeps state per key; it keeps state of another kind; it makes
them visible; none of it, so that effects only pass through it."""

COMMITS, AT_ONCE = "commits", "at once"
"""When a reader sees what reaches a sink: once a checkpoint that covers it is complete, or as it comes."""

INPUT, OUTPUT = "input", "output"
"""On which side of a channel a record in flight was stored."""


class OperatorFacts(NamedTuple):
    """One operator of a task. ``role``: what it is to effects; ``exposes``: when readers see what reaches a sink;
    ``key_type``: declared type of its keys."""

    uid: str
    name: str
    role: str
    exposes: str = AT_ONCE
    key_type: KeyType | None = None


class TaskFacts(NamedTuple):
    """One task in one attempt."""

    task: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    incarnation: int
    operators: tuple[OperatorFacts, ...]


class Lineage(Protocol):
    """What an operator says of records that it emits on its own account."""

    def emitting(self, key: Any, namespace: Any = None) -> None:
        """What is emitted until :meth:`emitted` comes from the state of ``key`` (and of a window, say)."""

    def emitted(self) -> None:
        """That is over."""

    def waits(self, records: int, namespace: Any = None) -> None:
        """So many records of those in hand wait in the operator's state, to be emitted together, in some form, from
        that namespace and no key."""


class TaskProvenance(Protocol):
    """What one task in one attempt says."""

    def restored(self, checkpoint_id: int | None) -> None:
        """The task starts, from this checkpoint or from nothing."""

    def lineage(self, uid: str) -> Lineage:
        """For the operator of that uid."""

    def read(self, uid: str, split: str) -> None:
        """A source is about to emit the next record of a split; it is what the task handles from now on."""

    def handles(self, cause: Cause, keys: Sequence[Any] | None, records: int) -> None:
        """Records of one cause have come to the head of the chain. ``keys``: theirs, on a keyed stream."""

    def handled(self) -> None:
        """The task is between two records."""

    def reaches(self, uid: str, values: Sequence[Any]) -> None:
        """Records of the present cause have come to an operator with state of its own, or to a sink."""

    def emits(self, uid: str) -> bool:
        """An operator emits records. Returns whether :meth:`emitted` is to be called behind that."""

    def emitted(self) -> None:
        """What the operator has emitted on its own account has gone down the chain."""

    @property
    def cause(self) -> Cause:
        """Of what is being emitted."""

    def snapshot(self, checkpoint_id: int) -> None:
        """All state of the task becomes part of a checkpoint."""

    def stored(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int, causes: list[Cause]) -> None:
        """Records in flight become part of a checkpoint: the cause of each, in their order."""


class Provenance(Protocol):
    """What a run says."""

    def task(self, facts: TaskFacts) -> TaskProvenance:
        """A task is built."""

    def in_flight(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int) -> Sequence[Cause]:
        """The causes of records in flight of a checkpoint, in the order in which they were stored."""

    def observe(self, event: TraceEvent) -> None:
        """An event of the trace."""
