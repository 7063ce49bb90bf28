"""The effect ledger: which source record has had which effects, as far as nothing has taken them back.

What is counted.

* A *cause* is ``(origin, number)``. An origin is a split of a source, and the number that of the record in it; or it is
  state of an operator that emits on its own account (a timer, a window, a batch), and the number counts its emissions.
  The latter go back with the state, so that what is emitted again after a restore is the same cause again.
* A *cell* is the state of one key of an operator, or all other state of an operator. A record has one effect on a cell
  each time it reaches the operator (with that key), whatever the operator makes of it.
* An *output* is a sink. What reaches one that commits is pending until a checkpoint behind it is complete; what reaches
  any other is seen at once, and nothing takes it back.

Cells, emissions and pending output go into checkpoints with the task, and back with it: after a restart a task has what
the checkpoint holds that it starts from, its own share of it when the number of subtasks has changed. One ledger serves
all processes of a run, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.explore.ledger.ranges import Effects
from engine.observe.events import (
    AttemptStarted,
    CheckpointCompleted,
    RunEnded,
    RunStarted,
    TaskState,
)
from engine.observe.provenance import COMMITS, KEYED, SINK, SOURCE, STATE, OperatorFacts, TaskFacts
from state_backends.key_groups import key_group_for, operator_index_for_key_group

if TYPE_CHECKING:
    from engine.observe.events import TraceEvent

RecordCause = tuple[int, int]
"""``(origin, number)``: the origin by its place in :attr:`EffectLedger.origins`."""


class Origin(NamedTuple):
    """Where causes come from. A split of a source; or an operator's state: of a key, perhaps of a window (``namespace``),
    or all of a subtask (then ``split`` is its number)."""

    uid: str
    split: str | None
    key: Any = None
    namespace: Any = None

    @property
    def is_source(self) -> bool:
        """Whether its numbers are those of records."""
        return self.split is not None and not self.split.startswith(_SUBTASK)


_SUBTASK = "\0subtask "


class Place(NamedTuple):
    """What records have effects on. ``kind``: ``key``, ``state`` or ``output``."""

    uid: str
    kind: str
    key: Any = None


KEY, WHOLE, OUTPUT = "key", "state", "output"


class Cell:
    """Effects on one cell, and how often its operator has emitted on its account, by namespace. ``version`` counts the
    effects; ``epoch`` says between which snapshots of the task it was last changed."""

    __slots__ = ("effects", "emitted", "epoch", "version")

    def __init__(self, epoch: int) -> None:
        self.effects = Effects()
        self.emitted: dict[Any, int] = {}
        self.version = 0
        self.epoch = epoch

    def copy(self, epoch: int) -> Cell:
        """The same, to be changed."""
        other = Cell(epoch)
        other.effects, other.emitted, other.version = self.effects.copy(), dict(self.emitted), self.version
        return other

    def fingerprint(self) -> object:
        """Equal for equal content."""
        return self.effects.fingerprint(), tuple(self.emitted.items())


@dataclass(slots=True)
class Exposed:
    """What readers were shown at once: ``checkpoint_id`` covers it, ``None`` = it was shown as it came, or at the end of
    a job without checkpoints. ``era``: how many restarts there had been. ``rows``: ``(cause, value)`` in their order."""

    uid: str
    task: str
    incarnation: int
    attempt: int
    checkpoint_id: int | None
    era: int
    effects: Effects = field(default_factory=Effects)
    rows: list[tuple[RecordCause, Any]] = field(default_factory=list)

    def fingerprint(self) -> object:
        """Equal for equal content."""
        return (self.uid, self.task, self.attempt, self.checkpoint_id, self.effects.fingerprint())


@dataclass(slots=True)
class TaskPart:
    """What a checkpoint holds of one task. Cells in it are not changed any more."""

    facts: TaskFacts
    cells: dict[Place, Cell]
    read: dict[int, int]
    pending: tuple[Exposed, ...]


@dataclass(slots=True)
class CheckpointPart:
    """What a checkpoint holds: of each task, and in flight (by side, edge, sender and receiver)."""

    tasks: dict[str, TaskPart] = field(default_factory=dict)
    in_flight: dict[tuple[str, str, int, int], list[RecordCause]] = field(default_factory=dict)


@dataclass(slots=True)
class Restart:
    """Tasks have begun anew: in ``attempt``, from ``checkpoint_id`` or from nothing, because of ``cause``.

    ``part``: what the checkpoint holds; ``tasks``: which were deployed; ``is_known``: whether the ledger has seen the
    checkpoint being taken.
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

    def read(self, origin: int, default: int = 0) -> int:
        """From which record of a split on it is read again; for other origins, the emission."""
        return max((part.read.get(origin, default) for part in self.part.tasks.values()), default=default)


class EffectLedger:
    """Implements :class:`engine.observe.provenance.Provenance`.

    ``keeps_rows``: whether the value of each record that reaches a sink is kept, to be compared with what readers see.
    """

    def __init__(self, *, keeps_rows: bool = True) -> None:
        self.keeps_rows = keeps_rows
        self.origins: list[Origin] = []
        self.names: dict[str, str] = {}
        """By uid: what the job calls the operator."""
        self.restarts: list[Restart] = []
        self.exposed: list[Exposed] = []
        """What readers were shown, oldest first."""
        self.withdrawn: list[tuple[Exposed, str]] = []
        """What reached a sink and must not be shown, and why."""
        self.started_ns = 0
        self.state: str | None = None
        self._origin_numbers: dict[Origin, int] = {}
        self._tasks: dict[str, TaskBook] = {}
        self._checkpoints: dict[int, CheckpointPart] = {}
        self._incarnation = 0
        self._attempt = 0
        self._failures: list[str] = []
        self._now_ns = 0

    # --- the port -----------------------------------------------------------------------------------------------

    def task(self, facts: TaskFacts) -> TaskBook:
        """A task is built."""
        for operator in facts.operators:
            self.names[operator.uid] = operator.name
        return TaskBook(self, facts)

    def in_flight(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int) -> Sequence[RecordCause]:
        """The causes of records in flight of a checkpoint."""
        part = self._checkpoints.get(checkpoint_id)
        assert part is not None, f"checkpoint {checkpoint_id} was not taken under this ledger"
        return part.in_flight.get((side, edge, sender, receiver), [])

    def observe(self, event: TraceEvent) -> None:
        """Attempts, failures and completed checkpoints."""
        match event:
            case AttemptStarted():
                self._attempt_started(event)
            case CheckpointCompleted():
                self._completed(event.checkpoint_id)
            case TaskState(state="failed"):
                self._failures.append(f"{event.task} failed ({event.cause})")
            case TaskState(state="finished"):
                self._finished(event.task, event.attempt)
            case RunStarted():
                self._incarnation = event.incarnation
                self._attempt = 0
                self.state = None
                if not self.restarts:
                    self.started_ns = event.time_ns
            case RunEnded():
                self.state = event.state
            case _:
                pass

    def _attempt_started(self, event: AttemptStarted) -> None:
        self._attempt = event.attempt
        part = CheckpointPart() if event.restored_checkpoint is None else self._checkpoints.get(event.restored_checkpoint)
        cause = "; ".join(self._failures)
        if not cause:
            later = event.attempt > 1
            cause = "the job manager had died" if later else "the process had died" if self.restarts else "the start"
        self._failures.clear()
        self.restarts.append(
            Restart(
                len(self.restarts),
                self._incarnation,
                event.attempt,
                event.time_ns,
                event.restored_checkpoint,
                cause,
                CheckpointPart() if part is None else part,
                part is not None,
            )
        )

    def _completed(self, checkpoint_id: int) -> None:
        for book in self._tasks.values():
            for one in book.take_pending(checkpoint_id):
                one.era = len(self.restarts)
                self.exposed.append(one)

    def _finished(self, task: str, attempt: int) -> None:
        book = self._tasks.get(task)
        if book is not None and book.facts.attempt == attempt:
            # Nothing is left when there are checkpoints: the last one is behind the end of the input.
            for one in book.take_open():
                one.era = len(self.restarts)
                self.exposed.append(one)

    # --- what task books ask ------------------------------------------------------------------------------------

    def origin(self, origin: Origin) -> int:
        """The number of an origin."""
        number = self._origin_numbers.get(origin)
        if number is None:
            number = self._origin_numbers[origin] = len(self.origins)
            self.origins.append(origin)
        return number

    def part_of(self, facts: TaskFacts, checkpoint_id: int | None) -> Iterator[TaskPart]:
        """Parts of a checkpoint that are about operators of a task, its own first; nothing on a fresh start."""
        if checkpoint_id is None:
            return
        part = self._checkpoints.get(checkpoint_id)
        if part is None:
            return
        uids = {operator.uid for operator in facts.operators}
        others = [one for name, one in sorted(part.tasks.items()) if name != facts.task]
        own = part.tasks.get(facts.task)
        for one in others if own is None else (own, *others):
            if not uids.isdisjoint(operator.uid for operator in one.facts.operators):
                yield one

    def starts(self, book: TaskBook, checkpoint_id: int | None) -> None:
        """A task begins: what it had before that no checkpoint has made visible is void."""
        restart = self.restarts[-1]
        restart.tasks.append(book.facts.task)
        before = self._tasks.get(book.facts.task)
        why = f"attempt {restart.attempt} began from " + _checkpoint_text(checkpoint_id)
        if before is not None:
            self.withdrawn += [(one, why) for one in before.unseen()]
        kept: list[Exposed] = []
        for one in self.exposed:
            # Committed behind the checkpoint that the run has gone back to: it is not part of this history any more.
            if one.checkpoint_id is not None and one.task == book.facts.task and one.checkpoint_id > (checkpoint_id or 0):
                self.withdrawn.append((one, why))
            else:
                kept.append(one)
        self.exposed = kept
        self._tasks[book.facts.task] = book

    def put_part(self, checkpoint_id: int, part: TaskPart) -> None:
        """A task's part of a checkpoint."""
        self._checkpoint(checkpoint_id).tasks[part.facts.task] = part

    def put_in_flight(self, checkpoint_id: int, which: tuple[str, str, int, int], causes: list[RecordCause]) -> None:
        """Records in flight of a checkpoint."""
        self._checkpoint(checkpoint_id).in_flight.setdefault(which, []).extend(causes)

    def _checkpoint(self, checkpoint_id: int) -> CheckpointPart:
        part = self._checkpoints.get(checkpoint_id)
        if part is None:
            part = self._checkpoints[checkpoint_id] = CheckpointPart()
        return part

    def show(self, exposed: Exposed) -> None:
        """Something is seen at once."""
        exposed.era = len(self.restarts)
        self.exposed.append(exposed)
