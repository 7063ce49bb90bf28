"""The effect ledger: which effects each source record has had, except those that a restore has taken back.

Its terms:

* A *cause* is ``(origin, number)``. If the origin is a split of a source, the number is that of the record in the
  split. If it is state of an operator that emits on its own (a timer, a window, a batch), the number counts emissions.
  A restore sets these numbers back with the state, so an emission repeated after it is the same cause again.
* A *cell* is the state of one key of an operator, or all other state of an operator. A record has one effect on a cell
  each time it reaches the operator (with that key), whatever the operator does with it.
* An *output* is a sink. At a sink that commits, a record is pending until the next checkpoint after it completes. At
  any other sink it is visible at once, and cannot be taken back.

Cells, emissions and pending output go into checkpoints with the task, and are restored with it. After a restart a task
has the content of its checkpoint, or its own share of it when the number of subtasks has changed. One ledger serves
all processes of a run, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.explore.ledger.ledger_entries import (
    OUTPUT,
    CheckpointPart,
    Exposed,
    Origin,
    Place,
    RecordCause,
    Restart,
    TaskPart,
)
from engine.explore.ledger.ranges import Effects
from engine.explore.ledger.task_book import TaskBook
from engine.explore.ledger.words import checkpoint_text, since_start
from engine.observe.provenance import AT_ONCE, SINK, TaskFacts
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, RunEnded, RunStarted, TaskState, TraceEvent


class EffectLedger:
    """Implements :class:`engine.observe.provenance.Provenance`.

    ``keeps_rows``: whether the value of each record that reaches a sink is kept, to be compared with readers' rows;
    ``retains``: from how many of the newest completed checkpoints the run may start again.
    """

    def __init__(self, *, keeps_rows: bool = True, retains: int = 10) -> None:
        self.keeps_rows = keeps_rows
        self._retains = retains
        self.origins: list[Origin] = []
        self.names: dict[str, str] = {}
        """By uid: the operator's name in the job."""
        self.shown_at_once: dict[str, None] = {}
        """Sinks that show records as they arrive."""
        self.restarts: list[Restart] = []
        self.exposed: list[Exposed] = []
        """Output shown to readers, oldest first."""
        self.versions: dict[RecordCause, int] = {}
        """By emission of a cell: how many effects the cell had seen by then."""
        self.batches: dict[RecordCause, Effects] = {}
        """By emission of a whole batch: the records in it."""
        self.unjudged: dict[str, None] = {}
        """Operators that got a summary of records which are not known."""
        self.started_ns = 0
        self.state: str | None = None
        self._origin_numbers: dict[Origin, int] = {}
        self._summarizing: dict[str, None] = {}
        """Operators that emit summaries."""
        self._withdrawn: list[tuple[Exposed, str]] = []
        self._tasks: dict[str, TaskBook] = {}
        self._checkpoints: dict[int, CheckpointPart] = {}
        self._completed_ids: list[int] = []
        self._incarnation = 0
        self._is_new_process = True
        self._epoch = 0
        self._failures: list[str] = []

    # --- the port -----------------------------------------------------------------------------------------------

    def task(self, facts: TaskFacts, now_ns: Callable[[], int]) -> TaskBook:
        for operator in facts.operators:
            self.names[operator.uid] = operator.name
            if operator.role == SINK and operator.exposes == AT_ONCE:
                self.shown_at_once[operator.uid] = None
        return TaskBook(self, facts)

    def in_flight(self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int) -> Sequence[RecordCause]:
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
                self._failures.append(self._failure(event))
            case TaskState(state="finished"):
                self._finished(event.task, event.attempt)
            case RunStarted():
                self._incarnation = event.incarnation
                self.state = None
                self._failures.clear()
                self._is_new_process = True
                if not self.restarts:
                    self.started_ns = event.time_ns
            case RunEnded():
                self.state = event.state
            case _:
                pass

    def _attempt_started(self, event: AttemptStarted) -> None:
        restored = event.restored_checkpoint
        part = CheckpointPart() if restored is None else self._checkpoints.get(restored)
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
                restored,
                cause,
                CheckpointPart() if part is None else part,
                part is not None,
            )
        )
        if self._is_new_process:
            self._is_new_process = False
            self._replace_all(restored, part)

    def _replace_all(self, checkpoint_id: int | None, part: CheckpointPart | None) -> None:
        """A new process: all previous tasks are gone, whatever the names of the new ones."""
        tasks = {} if part is None else part.tasks
        for name in list(self._tasks):
            self._withdraw(name, checkpoint_id)
        # Tasks that had finished by then are not started again, and their effects stay.
        self._tasks = {name: TaskBook.of_finished(self, task) for name, task in tasks.items() if task.has_finished}

    def _failure(self, event: TaskState) -> str:
        _, _, message = (event.cause or "").partition(": ")
        what = message if message.startswith(event.task) else f"{event.task} failed ({event.cause})"
        return f"{what} at {since_start(self, event.time_ns)}"

    def _completed(self, checkpoint_id: int) -> None:
        part = self._checkpoint(checkpoint_id)
        for book in self._tasks.values():
            if book.has_finished and book.facts.task not in part.tasks:
                # It takes part no more, and its effects stay.
                part.tasks[book.facts.task] = book.part()
            for one in book.take_pending(checkpoint_id):
                self.show(one)
        self._completed_ids.append(checkpoint_id)
        oldest = sorted(self._completed_ids)[-self._retains :][0]
        for old in [one for one in self._checkpoints if one < oldest]:
            del self._checkpoints[old]

    def _finished(self, task: str, attempt: int) -> None:
        book = self._tasks.get(task)
        if book is not None and book.facts.attempt == attempt:
            book.has_finished = True
            # With checkpoints nothing is left, except at a global committer: it commits after the last one as well.
            for one in book.take_rest():
                self.show(one)

    # --- questions of task books --------------------------------------------------------------------------------

    def origin(self, origin: Origin) -> int:
        number = self._origin_numbers.get(origin)
        if number is None:
            number = self._origin_numbers[origin] = len(self.origins)
            self.origins.append(origin)
        return number

    def summarized(self, uid: str, cause: RecordCause) -> list[RecordCause]:
        """The records for which a summary stands that has come to an operator."""
        self._summarizing[self.origins[cause[0]].uid] = None
        found: list[RecordCause] = []
        waiting = [cause]
        while waiting:
            one = waiting.pop()
            if self.origins[one[0]].uid not in self._summarizing:
                found.append(one)
            elif one in self.batches:
                for number, layers in self.batches[one].splits.items():
                    waiting += [(number, record) for layer in layers for record in layer]
            else:
                self.unjudged[uid] = None
        return found

    def part_of(self, facts: TaskFacts, checkpoint_id: int | None) -> Iterator[TaskPart]:
        """Parts of a checkpoint about operators of a task, its own first; nothing on a fresh start."""
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
        """A task begins: its earlier effects that no checkpoint has made visible are void."""
        restart = self.restarts[-1]
        for part in self.part_of(book.facts, checkpoint_id):
            for one in part.pending:
                # In the state of a completed checkpoint: sinks commit it now, even if they were notified before.
                self.show(one)
        restart.tasks.append(book.facts.task)
        self._withdraw(book.facts.task, checkpoint_id)
        self._tasks[book.facts.task] = book

    def _withdraw(self, task: str, checkpoint_id: int | None) -> None:
        """Remove what a task has written after the checkpoint to which it goes back."""
        why = f"attempt {self.restarts[-1].attempt} began from {checkpoint_text(checkpoint_id)}"
        before = self._tasks.get(task)
        if before is not None:
            self._withdrawn += [(one, why) for one in before.unseen() if not one.shown]
        kept: list[Exposed] = []
        for one in self.exposed:
            is_behind = one.checkpoint_id is not None and one.checkpoint_id > (checkpoint_id or 0)
            if is_behind and one.task == task:
                one.shown = False
                self._withdrawn.append((one, why))
            else:
                kept.append(one)
        self.exposed = kept

    def put_part(self, checkpoint_id: int, part: TaskPart) -> None:
        self._checkpoint(checkpoint_id).tasks[part.facts.task] = part

    def put_in_flight(self, checkpoint_id: int, which: tuple[str, str, int, int], causes: list[RecordCause]) -> None:
        self._checkpoint(checkpoint_id).in_flight.setdefault(which, []).extend(causes)

    def _checkpoint(self, checkpoint_id: int) -> CheckpointPart:
        part = self._checkpoints.get(checkpoint_id)
        if part is None:
            part = self._checkpoints[checkpoint_id] = CheckpointPart()
        return part

    def show(self, exposed: Exposed) -> None:
        """Readers see this output from now on, if they have not before."""
        if not exposed.shown:
            exposed.shown, exposed.era = True, len(self.restarts)
            self.exposed.append(exposed)

    def next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    # --- results ------------------------------------------------------------------------------------------------

    def effects(self) -> dict[Place, Effects]:
        """All effects that stand: on cells, and on output shown to readers."""
        parts: dict[Place, list[Effects]] = {}
        for book in self._tasks.values():
            for place, cell in book.cells.items():
                if cell.effects:
                    parts.setdefault(place, []).append(cell.effects)
        for one in self.exposed:
            parts.setdefault(Place(one.uid, OUTPUT), []).append(one.effects)
        return {place: Effects.sum(several) for place, several in parts.items()}

    def batch(self, origin: Origin, number: int) -> Effects | None:
        """The records of an emission, if it was a whole batch of them."""
        return self.batches.get((self._origin_numbers.get(origin, -1), number))

    def version(self, origin: Origin, number: int) -> int | None:
        """How many effects a cell had seen when it emitted; ``None`` for records of a source."""
        return self.versions.get((self._origin_numbers.get(origin, -1), number))

    def withdrawn(self) -> list[tuple[Exposed, str]]:
        """Output of sinks that must not be shown, because the run has gone back to before it; and why."""
        return [(one, why) for one, why in self._withdrawn if not one.shown]

    def unseen(self) -> list[Exposed]:
        """Output of sinks that no checkpoint has made visible."""
        return [one for book in self._tasks.values() for one in book.unseen() if not one.shown]
