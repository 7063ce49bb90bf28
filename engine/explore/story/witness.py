"""A witness of one case: every trace event, and the values that the trace does not carry.

The trace says which element went where; a story for people must say *what* it was. So the witness watches the places
that values pass anyway: where a source reads, where an operator gets a batch, where readers of a sink see new output.
It changes nothing: operators and sources get a listener in front of their methods, state and positions stay the same,
and a watched run has the same trace as an unwatched one.

The result is a list of *entries* in the order in which they happened: trace events as they are, and the classes below.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

from engine.elements.batch import Batch
from engine.elements.errors import shorten
from engine.elements.events import StopMode
from engine.elements.operator import Operator, OperatorFactory, TwoInputOperator
from engine.elements.source import Source, SourceContext, SplitReader
from engine.explore.cases import Ranges
from engine.explore.run import CaseView, Invariant, Reference, Start, Subject, World
from engine.faults.fault import Fault
from engine.graph.plan import ExecutionPlan, OperatorPlan
from engine.observe.trace_events import AttemptStarted, CheckpointTriggered, Receive, Send, TraceEvent
from engine.runtime.job import ENDED
from operators.sources import SourceOperator, reading_from, source_of

RECORDS = "records"


class RecordsRead(NamedTuple):
    """A source has read records of a split. ``numbers`` count the records of the split from 0, including those left out
    of the input; but entries do not contain the latter."""

    time_ns: int
    task: str
    uid: str
    split: str
    numbers: tuple[int, ...]
    values: tuple[Any, ...]


class RecordsHandled(NamedTuple):
    """An operator gets records. ``taken``: the trace event by which its task took them from a channel, ``None``
    for operators further down a chain."""

    time_ns: int
    task: str
    operator: str
    position: int
    values: tuple[Any, ...]
    taken: Receive | None


class OutputChanged(NamedTuple):
    """The output of readers has changed: ``added`` and ``gone`` rows by output. ``task``: the task that acted last."""

    time_ns: int
    task: str
    added: Mapping[str, tuple[str, ...]]
    gone: Mapping[str, tuple[str, ...]]


class ProcessDied(NamedTuple):
    """The process is dead, perhaps because its user cancelled the job; the next entries are those of another one."""

    time_ns: int
    incarnation: int
    cancelled: bool


class JobStarted(NamedTuple):
    """The user starts another job from a savepoint; the next entries are those of it."""

    time_ns: int
    start: Start
    incarnation: int


class FaultStruck(NamedTuple):
    """A fault has struck, just before the next entry."""

    time_ns: int
    fault: Fault


Entry = TraceEvent | RecordsRead | RecordsHandled | OutputChanged | ProcessDied | JobStarted | FaultStruck

Element = tuple[int, int, int, int]
"""``(incarnation, attempt, channel, element)``: one element on one channel."""


class Witness(Invariant):
    """Watches one run of ``subject``; run the case with :attr:`subject` and this among the invariants.

    ``entries``   the events and values, in order;
    ``values``    by element: the records that it carried, as far as the witness saw them;
    ``records``   by ``source uid/split``: how many records were read of it (the highest number, plus one);
    ``plans``     by incarnation: the plan of its process, which may come back with another parallelism;
    ``savepoints`` by incarnation and number: those that were triggered, and how the job continues.
    """

    name = "witness"
    _view: CaseView
    _world: World

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject = _WatchedSubject(subject, self)
        self.entries: list[Entry] = []
        self.values: dict[Element, tuple[Any, ...]] = {}
        self.records: dict[str, int] = {}
        self.plans: dict[int, ExecutionPlan] = {}
        self.savepoints: dict[tuple[int, int], str] = {}
        self._seen: dict[str, tuple[str, ...]] = {}
        self._unseen: list[tuple[Element, Send]] = []
        self._whole: dict[Element, None] = {}
        self._channels: dict[int, Any] = {}
        self._taken: Receive | None = None
        self._reading = ""
        self._struck = 0
        self._positions: dict[str, _Positions] = {}

    # -- as an invariant --------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        return dict.fromkeys(get_args(TraceEvent), self._event)

    def process_started(self, view: CaseView) -> None:
        if view.start is not None and self.plans and self._view.job != view.job:
            self.entries.append(JobStarted(self._now_ns, view.start, view.incarnation))
        self._view = view
        self._world = view.world
        self.plans[view.incarnation] = view.plan
        self._channels = {}
        self._unseen = []

    def process_died(self, view: CaseView) -> None:
        self._look_at_channels()
        self._look_at_faults()
        if view.execution.manager.job.state not in ENDED:
            self.entries.append(ProcessDied(self._now_ns, view.incarnation, view.cancelled))

    @property
    def trace(self) -> list[TraceEvent]:
        return [one for one in self.entries if not isinstance(one, BESIDE_THE_TRACE)]

    def carried(self, incarnation: int, event: Send | Receive) -> tuple[Any, ...] | None:
        """The records of the element that an event is about, ``None`` when the witness has not seen them."""
        return self.values.get((incarnation, event.attempt, event.channel, event.element))

    @property
    def _now_ns(self) -> int:
        return self._view.execution.kernel.now_ns

    def _event(self, event: TraceEvent) -> None:
        self._look_at_channels()
        self._look_at_faults()
        self.entries.append(event)
        if isinstance(event, Receive):
            self._taken = event if event.kind == RECORDS else None
        elif isinstance(event, Send):
            if event.kind == RECORDS:
                self._unseen.append((self._element(event), event))
        elif isinstance(event, AttemptStarted):
            self._channels = {}
        elif isinstance(event, CheckpointTriggered):
            self._note_savepoint(event.checkpoint_id)

    def _note_savepoint(self, checkpoint_id: int) -> None:
        manager = self._view.execution.manager
        if checkpoint_id in manager.files.savepoint_locations:
            stops = [one.order.stop for one in manager.savepoints.reports if one.order.stop is not None]
            stop = stops[-1] if manager.savepoints.is_stopping else None
            self.savepoints[self._view.incarnation, checkpoint_id] = _WHAT_BECOMES_OF_THE_JOB[stop]

    def _element(self, event: Send | Receive) -> Element:
        return (self._view.incarnation, event.attempt, event.channel, event.element)

    def _look_at_channels(self) -> None:
        """Look in the queues for elements that were just sent: some of them will never be taken."""
        for element, event in self._unseen:
            if element not in self.values:
                batch = self._queued(event)
                if batch is not None:
                    self.values[element] = tuple(batch.values)
                    self._whole[element] = None
        self._unseen.clear()

    def _look_at_faults(self) -> None:
        """Note the faults that have struck since: most of them leave no other trace than a missing event."""
        struck = getattr(self._view.execution.interference, "struck", ())
        for fault in struck[self._struck :]:
            self.entries.append(FaultStruck(self._now_ns, fault))
        self._struck = len(struck)

    def _queued(self, event: Send) -> Batch | None:
        channel = self._channel(event.channel)
        if channel is None or channel.attempt != event.attempt:
            return None
        for number, element in (*channel.queue, *(channel.outgoing or ())):
            if number == event.element and isinstance(element, Batch):
                return element
        return self._under_way(channel, event.element)

    def _channel(self, index: int) -> Any:
        if index not in self._channels:
            tasks = self._view.execution.manager.tasks.values()
            self._channels = {one.index: one for task in tasks for writer in task.writers for one in writer.channels}
        return self._channels.get(index)

    def _under_way(self, channel: Any, number: int) -> Batch | None:
        for event in self._view.execution.kernel.pending():
            if event.operation == "arrive" and event.target is channel and event.payload[0] == number:
                element = event.payload[1]
                return element if isinstance(element, Batch) else None
        return None

    # -- reports of the listeners --------------------------------------------------------------------------------------

    def positions_of(self, uid: str) -> _Positions:
        """Of a source: shared by all processes of a case, because one continues where another has stopped."""
        return self._positions.setdefault(uid, _Positions({}, {}))

    def source_asked(self, task: str) -> None:
        """The source of a task is about to read."""
        self._reading = task

    def records_read(self, uid: str, split: str, end: int, kept: Sequence[tuple[int, Any]]) -> None:
        """A source has read a split up to record ``end``; ``kept``: numbers and values of the records not left out."""
        key = f"{uid}/{split}"
        self.records[key] = max(self.records.get(key, 0), end)
        if kept:
            numbers, values = zip(*kept, strict=True)
            self.entries.append(RecordsRead(self._now_ns, self._reading, uid, split, numbers, values))

    def records_handled(self, task: str, operator: str, position: int, batch: Batch) -> None:
        values, taken = tuple(batch.values), self._taken if position == 0 else None
        if taken is not None:
            self._taken = None
            element = self._element(taken)
            if element not in self._whole:
                # A batch that was cut comes in parts.
                self.values[element] = (*self.values.get(element, ()), *values)
        self.entries.append(RecordsHandled(self._now_ns, task, operator, position, values, taken))

    def look_at_output(self, task: str) -> None:
        now = {name: tuple(rows) for name, rows in self._world.committed().items()}
        if now == self._seen:
            return
        before, self._seen = self._seen, now
        added, gone = _surplus(now, before), _surplus(before, now)
        if added or gone:
            self.entries.append(OutputChanged(self._now_ns, task, added, gone))

    def of_run(self, plan: ExecutionPlan, world: World) -> ExecutionPlan:
        """The plan of a run that is no case, with its own sinks; ``world`` knows what readers of them see."""
        return self.in_world(plan.with_operators(lambda one: self.subject.heard(one, {})), world)

    def in_world(self, plan: ExecutionPlan, world: World) -> ExecutionPlan:
        """The plan with a listener in front of every operator; ``plan`` has its sinks already."""
        self._world = world
        names = {operator.uid: vertex.name for vertex, operator in plan.operators()}
        return plan.with_operators(
            lambda one: replace(one, factory=partial(_attended, one.factory, self, names[one.uid], one))
        )


_WHAT_BECOMES_OF_THE_JOB = {
    None: "the job goes on",
    StopMode.SUSPEND: "the job stops with it",
    StopMode.TERMINATE: "event time ends, and the job stops with it",
}

BESIDE_THE_TRACE = (RecordsRead, RecordsHandled, OutputChanged, ProcessDied, JobStarted, FaultStruck)


_Rows = Mapping[str, tuple[str, ...]]


def _surplus(more: _Rows, less: _Rows) -> dict[str, tuple[str, ...]]:
    """By output, the rows of ``more`` that ``less`` does not have, or not as often; sorted."""
    found = {}
    for name, rows in more.items():
        others = less.get(name, ())
        if others[: len(rows)] == rows:
            continue
        # Most outputs only grow at their end: nothing needs to be counted for that.
        grown = rows[: len(others)] == others
        left = rows[len(others) :] if grown else tuple((Counter(rows) - Counter(others)).elements())
        if left:
            found[name] = tuple(sorted(left))
    return found


class _WatchedSubject(Subject):
    """The same job; every plan made of it for a world is watched."""

    def __init__(self, subject: Subject, witness: Witness) -> None:
        super().__init__(lambda _: _unbuilt(), label=subject.label, path=subject.path, params=subject.params)
        self._subject = subject
        self._witness = witness

    def plan(self, parallelism: int | None = None) -> ExecutionPlan:
        return self._subject.plan(parallelism)

    def reference(self, dropped: Mapping[str, Ranges] | None = None) -> Reference:
        return self._subject.reference(dropped)

    def in_world(self, plan: ExecutionPlan, world: World, dropped: Mapping[str, Ranges] | None = None) -> ExecutionPlan:
        # Sources first: the listener is closer to the source than the removal of records, so it knows their numbers.
        watched = plan.with_operators(lambda operator: self.heard(operator, dropped or {}))
        return self._witness.in_world(self._subject.in_world(watched, world, dropped), world)

    def heard(self, operator: OperatorPlan, dropped: Mapping[str, Ranges]) -> OperatorPlan:
        """A source with a listener in front of it; any other operator as it is."""
        source = source_of(operator.factory)
        if source is None:
            return operator
        watched = _WatchedSource(source, self._witness, operator.uid, dropped, self._witness.positions_of(operator.uid))
        return replace(operator, factory=reading_from(operator.factory, watched))


def _unbuilt() -> Any:
    raise AssertionError("the plan of a watched job is that of the job")


class _Positions(NamedTuple):
    """``numbers``: ``(split, position)`` -> how many records lie before it; ``seen``: by split and record, the number
    of the last such record."""

    numbers: dict[tuple[str, str], int]
    seen: dict[str, dict[str, int]]


class _WatchedSource:
    """Tells the witness which records are read. Positions are those of the source: they go into snapshots."""

    def __init__(
        self, source: Source, witness: Witness, uid: str, dropped: Mapping[str, Ranges], positions: _Positions
    ) -> None:
        self._source, self._witness, self._uid, self._dropped = source, witness, uid, dropped
        self.inner = source
        self._numbers, self._seen = positions

    def splits(self, context: SourceContext) -> Sequence[str]:
        return self._source.splits(context)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        number = 0 if position is None else self._numbers.get((split, repr(position)))
        reader = self._source.open_split(split, position, context)
        return _WatchedReader(reader, self, split, number)

    def passed(self, split: str, position: Any, number: int) -> None:
        """Remember how many records lie before a position."""
        self._numbers[split, repr(position)] = number

    def number_of(self, split: str, value: Any) -> int:
        """The number of a record read from a position that the source never gave: the position was made up. It is taken
        for the last equal record, or for one after all that were seen."""
        seen = self._seen.get(split, {})
        return seen.get(shorten(value, sys.maxsize), max(seen.values(), default=-1) + 1)

    def read(self, split: str, first: int, batch: Batch) -> None:
        seen = self._seen.setdefault(split, {})
        seen.update((shorten(value, sys.maxsize), number) for number, value in enumerate(batch.values, start=first))
        key = f"{self._uid}/{split}"
        dropped = self._dropped.get(key, ())
        kept = [
            (number, value)
            for number, value in enumerate(batch.values, start=first)
            if not any(begin <= number < end for begin, end in dropped)
        ]
        self._witness.records_read(self._uid, split, first + len(batch), kept)


class _WatchedReader:
    def __init__(self, reader: SplitReader, source: _WatchedSource, split: str, number: int | None) -> None:
        self._reader, self._source, self._split, self._number = reader, source, split, number

    def read(self, max_records: int) -> Batch | None:
        batch = self._reader.read(max_records)
        if batch is not None and len(batch):
            if self._number is None:
                self._number = self._source.number_of(self._split, batch.values[0])
            self._source.read(self._split, self._number, batch)
            self._number += len(batch)
        return batch

    def position(self) -> Any:
        position = self._reader.position()
        if self._number is not None:
            self._source.passed(self._split, position, self._number)
        return position

    def available_at_ns(self, now_ns: int) -> int:
        return self._reader.available_at_ns(now_ns)

    def close(self) -> None:
        self._reader.close()


def _attended(factory: OperatorFactory, witness: Witness, vertex: str, plan: OperatorPlan) -> Operator:
    """An operator of the factory that tells the witness which records it gets."""
    made = factory()
    listener = _Listener(witness, made, vertex, plan)
    if isinstance(made, SourceOperator):
        heard = {"emit_next": listener.asks(made.emit_next)}
    else:
        heard = {"process_batch": listener.takes(made.process_batch)}
    if isinstance(made, TwoInputOperator):
        heard["process_batch_2"] = listener.takes(made.process_batch_2)
    if listener.is_last:
        heard.update({name: listener.does(getattr(made, name)) for name in _MAY_COMMIT})
    for name, method in heard.items():
        setattr(made, name, method)
    return made


_MAY_COMMIT = ("initialize_state", "notify_checkpoint_complete", "notify_checkpoint_aborted", "finish", "close")


class _Listener:
    """The listener in front of the methods of one operator."""

    def __init__(self, witness: Witness, operator: Operator, vertex: str, plan: OperatorPlan) -> None:
        self._witness, self._operator, self._vertex, self._plan = witness, operator, vertex, plan
        self.is_last = not plan.chained_outputs and not plan.edge_outputs

    @property
    def _task(self) -> str:
        return f"{self._vertex}[{self._operator.context.subtask}]"

    def asks(self, emit_next: Callable[[int], int | None]) -> Callable[..., Any]:
        def ask(max_records: int) -> int | None:
            self._witness.source_asked(self._task)
            return emit_next(max_records)

        return ask

    def takes(self, process: Callable[[Batch], None]) -> Callable[..., Any]:
        def take(batch: Batch) -> None:
            self._witness.records_handled(self._task, self._plan.name, self._plan.position, batch)
            process(batch)
            if self.is_last:
                self._witness.look_at_output(self._task)

        return take

    def does(self, method: Callable[..., None]) -> Callable[..., Any]:
        def do(*arguments: Any) -> None:
            method(*arguments)
            self._witness.look_at_output(self._task)

        return do
