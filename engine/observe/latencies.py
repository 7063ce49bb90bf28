"""How long records take: from when they are due to each sink, and through each task.

It is a listener of :mod:`engine.observe.provenance`. The cause of a record is the pair ``(due, sent)``: when the source
record that caused it was due, and when it was sent to the task that handles it.

Rules.

* *Event latency* counts from when a source record is due (by default: read) to when a record that it caused reaches a
  sink. Records that an operator emits from its state at another time (a window that ends) have no single cause; they
  are counted, but not timed.
* *Sojourn* in a task counts from when a record was sent to the task until the task has handled it: under way, in the
  queue, in service. In a source it counts from when the record is due until it is sent.
* A record in flight that a checkpoint stores keeps its cause, for a restore in the same run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine.observe.histogram import Histogram
from engine.observe.provenance import Cause, TaskFacts

_CHECKPOINTS_KEPT = 64
"""A restore hardly goes back farther; a record in flight without its cause is not timed."""


class Took(NamedTuple):
    """``due_ns``: of the source record, ``None`` = none in particular; ``sent_ns``: to the task that handles it."""

    due_ns: int | None
    sent_ns: int


class Latencies:
    """The times of one run. Implements :class:`engine.observe.provenance.Provenance`.

    ``events``   by name of the sink: event latencies;
    ``sojourns`` by name of the vertex: times in its tasks;
    ``untimed``  by name of the sink: records without a single cause.
    """

    observe = None

    def __init__(self) -> None:
        self.events: dict[str, Histogram] = {}
        self.sojourns: dict[str, Histogram] = {}
        self.untimed: dict[str, int] = {}
        self._stored: dict[int, dict[tuple[str, str, int, int], list[Cause]]] = defaultdict(dict)

    def task(self, facts: TaskFacts, now_ns: Callable[[], int]) -> TaskLatencies:
        """See the contract, as for the other methods."""
        return TaskLatencies(self, facts, now_ns)

    def in_flight(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int) -> Sequence[Cause] | None:
        return self._stored[checkpoint_id].get((side, edge, sender, receiver))

    def store(self, checkpoint_id: int, place: tuple[str, str, int, int], causes: list[Cause]) -> None:
        """Records in flight become part of a checkpoint."""
        self._stored[checkpoint_id][place] = causes
        self._stored.pop(checkpoint_id - _CHECKPOINTS_KEPT, None)


class TaskLatencies:
    """The times of one task in one attempt; implements :class:`engine.observe.provenance.TaskProvenance`, and the
    lineage of its operators."""

    def __init__(self, run: Latencies, facts: TaskFacts, now_ns: Callable[[], int]) -> None:
        self._run = run
        self._now_ns = now_ns
        self._sojourn = run.sojourns.setdefault(facts.vertex, Histogram())
        self._ends = {one.uid: one.name for one in facts.operators if one.is_last}
        for name in self._ends.values():
            run.events.setdefault(name, Histogram())
        self._due_ns: int | None = None

    def restored(self, checkpoint_id: int | None) -> None:
        """Nothing goes back: what was measured has happened."""

    def lineage(self, uid: str) -> TaskLatencies:
        return self

    def emitting(self, key: Any, namespace: Any = None) -> None:
        """Records come from the state of a key."""

    def waits(self, records: int, namespace: Any = None) -> None:
        """Records wait in the state."""

    def read(self, uid: str, split: str, due_ns: int | None) -> None:
        now_ns = self._now_ns()
        self._due_ns = now_ns if due_ns is None else due_ns
        self._sojourn.add(now_ns - self._due_ns)

    def handles(self, cause: Took | None, keys: Sequence[Any] | None, records: int) -> None:
        if cause is None:
            self._due_ns = None
        else:
            self._due_ns = cause.due_ns
            self._sojourn.add(self._now_ns() - cause.sent_ns, records)

    def handled(self) -> None:
        self._due_ns = None

    def reaches(self, uid: str, values: Sequence[Any]) -> None:
        sink = self._ends.get(uid)
        if sink is not None:
            if self._due_ns is None:
                self._run.untimed[sink] = self._run.untimed.get(sink, 0) + len(values)
            else:
                self._run.events[sink].add(self._now_ns() - self._due_ns, len(values))

    def emits(self, uid: str) -> bool:
        return False

    def emitted(self) -> None:
        """Nothing is kept about single emissions."""

    @property
    def cause(self) -> Took:
        return Took(self._due_ns, self._now_ns())

    def snapshot(self, checkpoint_id: int) -> None:
        """Nothing goes back."""

    def stored(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int, causes: list[Cause]) -> None:
        self._run.store(checkpoint_id, (side, edge, sender, receiver), causes)
