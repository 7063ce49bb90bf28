"""The parts of an effect ledger as plain data: causes, cells, output, and their copies in checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.explore.ledger.ranges import Effects
from engine.observe.provenance import TaskFacts

RecordCause = tuple[int, int]
"""``(origin, number)``: the origin by its place in :attr:`EffectLedger.origins`."""


KEY, WHOLE, OUTPUT = "key", "state", "output"


class Place(NamedTuple):
    """A target of effects. ``kind``: ``key``, ``state`` or ``output``."""

    uid: str
    kind: str
    key: Any = None


class Origin(NamedTuple):
    """The origin of causes: a split of a source, or state of an operator. The state belongs to a key, perhaps to a
    window (``namespace``), or is all state of a subtask (then ``split`` names the subtask)."""

    uid: str
    split: str | None
    key: Any = None
    namespace: Any = None
    is_source: bool = False

    @property
    def cell(self) -> Place:
        """The state that emits, if it is not a source."""
        return Place(self.uid, WHOLE) if self.split is not None else Place(self.uid, KEY, self.key)


_SUBTASK = "subtask "


def subtask_split(subtask: int) -> str:
    """The name of an origin that is all state of a subtask."""
    return f"{_SUBTASK}{subtask}"


class Cell:
    """Effects on one cell, and how often its operator has emitted from it, by namespace.

    ``waiting``: records that will be emitted together; ``version`` counts the effects; ``epoch`` says between
    which snapshots of the task the cell was last changed.
    """

    __slots__ = ("effects", "emitted", "epoch", "version", "waiting")

    def __init__(self, epoch: int) -> None:
        self.effects = Effects()
        self.emitted: dict[Any, int] = {}
        self.waiting: dict[Any, Effects] = {}
        self.version = 0
        self.epoch = epoch

    def copy(self, epoch: int) -> Cell:
        other = Cell(epoch)
        other.effects, other.emitted, other.version = self.effects.copy(), dict(self.emitted), self.version
        other.waiting = {namespace: effects.copy() for namespace, effects in self.waiting.items()}
        return other

    def and_also(self, more: Cell) -> Cell:
        """The state of two subtasks, after their number has changed."""
        both = self.copy(self.epoch)
        both.effects, both.version = Effects.sum([self.effects, more.effects]), self.version + more.version
        for namespace, count in more.emitted.items():
            both.emitted[namespace] = max(count, both.emitted.get(namespace, 0))
        for namespace, waiting in more.waiting.items():
            both.waiting[namespace] = Effects.sum([waiting, both.waiting.get(namespace, Effects())])
        return both


@dataclass(slots=True)
class Exposed:
    """Output that readers are shown in one step.

    ``checkpoint_id`` covers it, ``None`` = it was shown on arrival, or at the end of a job without checkpoints;
    ``era``: how many starts there had been when it was shown; ``rows``: ``(cause, value)`` in their order.
    """

    uid: str
    task: str
    incarnation: int
    attempt: int
    checkpoint_id: int | None
    era: int
    shown: bool = False
    effects: Effects = field(default_factory=Effects)
    rows: list[tuple[RecordCause, Any]] = field(default_factory=list)


@dataclass(slots=True)
class TaskPart:
    """One task's part of a checkpoint. Its cells do not change any more. ``has_finished``: the task no longer
    took part."""

    facts: TaskFacts
    cells: dict[Place, Cell]
    read: dict[int, int]
    pending: tuple[Exposed, ...]
    has_finished: bool = False


@dataclass(slots=True)
class CheckpointPart:
    """Content of a checkpoint: of each task, and in flight (by side, edge, sender and receiver)."""

    tasks: dict[str, TaskPart] = field(default_factory=dict)
    in_flight: dict[tuple[str, str, int, int], list[RecordCause]] = field(default_factory=dict)


@dataclass(slots=True)
class Restart:
    """Tasks have begun anew: in ``attempt``, from ``checkpoint_id`` or from nothing, because of ``cause``.

    ``part``: the content of the checkpoint; ``tasks``: which were deployed; ``is_known``: whether the ledger has seen
    the checkpoint being taken.
    """

    number: int
    incarnation: int
    attempt: int
    time_ns: int
    checkpoint_id: int | None
    cause: str
    part: CheckpointPart
    is_known: bool = True
    tasks: list[str] = field(default_factory=list)

    def parts(self) -> list[TaskPart]:
        """The parts from which the new tasks start. A new process deploys all, whatever their names now."""
        return [part for name, part in self.part.tasks.items() if self.attempt == 1 or name in self.tasks]
