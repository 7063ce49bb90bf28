"""Turn a drawn case into a concrete one: the form that is shrunk, pasted into a test and kept for years.

Concrete means: exactly the faults that struck and no chance of others; first come, first served except where the case
says otherwise; checkpoints at named instants. Each step is tried out and kept only if the run stays the same
event by event, so a concrete case is always the same run as the one it was made from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from engine.explore.cases import FIFO, Case
from engine.explore.run import CaseView, FinishedCase, Invariant, Subject, choices_of, hears, run_case, trace_digest
from engine.faults.fault import FaultMix
from engine.observe.trace_events import AttemptStarted, CheckpointTriggered, TaskState, TraceEvent
from engine.runtime.kernel import SCHEDULE, START_NS, Choice, ChoiceRecorder, ReadyEvent


def concretised(finished: FinishedCase) -> Case:
    """The concrete case of this run, as far as it gives the same run; at worst the case unchanged."""
    subject, case = finished.view.subject, finished.view.case
    trace: list[TraceEvent] = []
    picks, triggers = _Recording(choices_of(case)), Triggers()
    again = run_case(subject, case, [triggers], choices=picks, instruments=[trace.append])
    digest = trace_digest(trace)
    exact = replace(case, faults=again.faults, mix=FaultMix(), scheduler=FIFO, schedule=sparse_schedule(again.choices))
    if _digest(subject, exact) != digest:
        return case
    named = _with_named_checkpoints(subject, exact, picks.picks, triggers.periodic)
    return named if named is not None and _digest(subject, named) == digest else exact


def sparse_schedule(choices: Iterable[Choice]) -> dict[int, int]:
    """The draws of the schedule that are not 0, by number."""
    drawn = (choice.value for choice in choices if choice.stream == SCHEDULE)
    return {number: value for number, value in enumerate(drawn) if value}


def _digest(subject: Subject, case: Case) -> str:
    trace: list[TraceEvent] = []
    run_case(subject, case, instruments=[trace.append])
    return trace_digest(trace)


def _with_named_checkpoints(
    subject: Subject, case: Case, picks: Sequence[tuple[int, str]], instants: Sequence[int]
) -> Case | None:
    """The case with an instant for each checkpoint, and its schedule: another event now triggers a checkpoint, so draws
    have other numbers; the order of turns stays the same."""
    if case.checkpoints is not None:
        return None
    config = {name: value for name, value in case.config.items() if name != "checkpoint_interval"}
    named = replace(case, config=config, checkpoints=tuple(instants))
    following = _Following(case.seed, picks)
    run_case(subject, named, choices=following)
    return replace(named, schedule=sparse_schedule(following.log))


class Triggers(Invariant):
    """The instants at which checkpoints were triggered, without savepoints, in ns since the start. ``periodic``:
    without those that follow the end of all input; these are triggered anyway."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[int] = []
        self.periodic: list[int] = []
        self._view: CaseView | None = None
        self._states: dict[str, str] = {}

    def process_started(self, view: CaseView) -> None:
        self._view = view

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        self._states.clear()

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        self._states[event.task] = event.state

    @hears(CheckpointTriggered)
    def _on_triggered(self, event: CheckpointTriggered) -> None:
        assert self._view is not None, "a process has started"
        if event.checkpoint_id not in self._view.execution.manager.files.savepoint_locations:
            self.all.append(event.time_ns - START_NS)
            if "running" in self._states.values():
                self.periodic.append(event.time_ns - START_NS)


class _Recording(ChoiceRecorder):
    """Passes every question on to another recorder, and keeps the order of turns."""

    def __init__(self, inner: ChoiceRecorder) -> None:
        super().__init__(inner.seed)
        self._inner = inner
        self.log = inner.log
        self.picks: list[tuple[int, str]] = []

    def draw(self, stream: str, bound: int) -> int:
        return self._inner.draw(stream, bound)

    def pick(self, ready: Sequence[ReadyEvent]) -> int:
        position = self._inner.pick(ready)
        self.picks.append((ready[position][0], _name(ready[position])))
        return position


class _Following(ChoiceRecorder):
    """At each instant it gives the turn to the same actor as before; then to the oldest."""

    def __init__(self, seed: str, picks: Iterable[tuple[int, str]]) -> None:
        super().__init__(seed)
        self._names: dict[int, deque[str]] = {}
        for time_ns, name in picks:
            self._names.setdefault(time_ns, deque()).append(name)

    def pick(self, ready: Sequence[ReadyEvent]) -> int:
        names = self._names.get(ready[0][0])
        name = names.popleft() if names else None
        position = next((at for at, event in enumerate(ready) if _name(event) == name), 0)
        self.log.append(Choice(SCHEDULE, position, len(ready)))
        return position


def _name(event: ReadyEvent) -> str:
    return str(getattr(event[3], "name", type(event[3]).__name__))
