"""Records one run for a page: its entries (:mod:`engine.explore.story.witness`), and the state after each step.

A step is one event of the kernel. After each, the recorder keeps the cells that have changed
(:mod:`engine.view.changing_cells`), with the value before: a viewer can go both ways. It is an invariant, so it records
a case; a run that is no case calls :meth:`Recorder.of_run`, and then the same methods.

A long run is not kept whole: the newest ``most`` entries, or, once something has failed, half of them before it and
half after. ``left_out`` counts the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, get_args

from engine.elements.errors import ConfigurationError, StorageError
from engine.explore.cases import Case
from engine.explore.run import CaseView, FileOutput, Invariant, SinkInMemory, Subject, World, output_of
from engine.explore.story import Witness
from engine.faults.injector import FaultInjector
from engine.graph.plan import ExecutionPlan
from engine.observe.points import TORN
from engine.observe.trace_events import AttemptStarted, RunStarted, TaskState, TraceEvent
from engine.runtime.execution import Execution, ExecutionResult, Progress
from engine.runtime.kernel import JOB_MANAGER
from engine.view.changing_cells import Changes, ChangingCells
from engine.view.readings import Reading
from state_backends.files import FileSystem, LocalFileSystem

MOST_ENTRIES = 60_000
_MOST_ROWS = 2_000
_PROGRESS_EVERY = 2_000


@dataclass(frozen=True, slots=True)
class Sample:
    """After a step: ``at``, how many entries there were, the first ones left out included; the cells that have changed,
    with their texts before and after (``None`` = there is no such cell); and the last visit of a point at which the run
    could be made to crash, as the text of that fault."""

    at: int
    changes: tuple[tuple[Reading, str | None, str | None], ...]
    crash: str | None


@dataclass(eq=False)
class Readers(World):
    """What readers of a run's own sinks see, as long as it is little: a page does not show thousands of rows."""

    unseen: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: ExecutionPlan, output_dir: str, files: FileSystem | None = None) -> Readers:
        made = cls(files=LocalFileSystem() if files is None else files)
        for _, operator in plan.operators():
            owner = getattr(operator.factory, "__self__", None)
            output = output_of(owner)
            if isinstance(owner, SinkInMemory):
                made.sinks[operator.uid] = owner
            elif output is not None:
                made.file_outputs[operator.uid] = FileOutput(os.path.join(output_dir, output.path), output)
        return made

    def committed(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for uid in [one for one in (*self.sinks, *self.file_outputs) if one not in self.unseen]:
            try:
                rows = {uid: self.sinks[uid].committed_rows()} if uid in self.sinks else self._of_files(uid)
            except (ConfigurationError, StorageError):
                self.unseen[uid] = None
                continue
            if sum(map(len, rows.values())) > _MOST_ROWS:
                self.unseen[uid] = None
            else:
                found |= rows
        return found

    def _of_files(self, uid: str) -> dict[str, list[str]]:
        rows = self.file_outputs[uid].rows(self.files)
        return {f"{uid}/{bucket}" if bucket else uid: list(some) for bucket, some in rows.items()}


class Recorder(Invariant):
    """``witness`` and ``samples`` are the recording; ``entries`` counts all entries, those left out included."""

    name = "recorder"
    every_events = 1

    def __init__(self, subject: Subject, *, most: int = MOST_ENTRIES) -> None:
        super().__init__()
        self.subject = subject
        self.witness = Witness(subject)
        self.samples: list[Sample] = []
        self.before: dict[Reading, str] = {}
        """The cells before the first sample that is kept."""
        self.left_out = self.after = 0
        """Entries left out before those that are kept, and after them."""
        self.readers: Readers | None = None
        self._most = most
        self._failed_at: int | None = None
        self._cells = ChangingCells()
        self._looked = 0

    # -- watching --------------------------------------------------------------------------------------------------

    def of_run(self, plan: ExecutionPlan, output_dir: str) -> ExecutionPlan:
        """The plan to run instead of a plan that is no case's."""
        self.readers = Readers.of(plan, output_dir)
        return self.witness.of_run(plan, self.readers)

    def run(self, execution: Execution, progress: Callable[[Progress], None] | None = None) -> ExecutionResult:
        """Make a run that is no case: ``execution`` has the plan of :meth:`of_run`, and :meth:`observe` among its
        instruments."""
        assert self.readers is not None, "of_run has made its plan"
        environment = execution.manager.deployment.environment
        view = CaseView(
            self.subject, Case(), execution.config, execution.plan, self.readers, execution, environment.incarnation,
            1, None, "",
        )  # fmt: skip
        self.witness.process_started(view)
        self.process_started(view)

        steps = count(1)

        def between(reached: Progress) -> None:
            self.between_events()
            if progress is not None and next(steps) % _PROGRESS_EVERY == 0:
                progress(reached)

        try:
            return execution.run(between, 1)
        finally:
            self.between_events()

    def observe(self, event: TraceEvent) -> None:
        """As an instrument of a run that is no case."""
        self._note(event)
        self._event(event)

    def handlers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        return dict.fromkeys(get_args(TraceEvent), self._event)

    def process_started(self, view: CaseView) -> None:
        self._view = view
        self._note = self.witness.handlers()[AttemptStarted]
        self._cells.process_started(view)

    def process_died(self, view: CaseView) -> None:
        self._fail()
        self._sample(self._cells.all_gone())

    def finished(self, case: Any) -> None:
        self.between_events()

    @property
    def plan(self) -> ExecutionPlan:
        """Of the newest process."""
        return self._view.plan

    @property
    def execution(self) -> Execution:
        """Of the newest process."""
        return self._view.execution

    def _event(self, event: TraceEvent) -> None:
        self._cells.heard(event)
        if isinstance(event, TaskState) and event.state == "failed":
            self._fail()

    def _fail(self) -> None:
        if self._failed_at is None:
            self._failed_at = self.entries

    @property
    def entries(self) -> int:
        return self.left_out + len(self.witness.entries)

    @property
    def is_full(self) -> bool:
        """Whether the rest of the run is left out: it comes long after the failure."""
        return self._failed_at is not None and self.entries > self._failed_at + self._most // 2

    # -- sampling --------------------------------------------------------------------------------------------------

    def between_events(self) -> None:
        if self.is_full:
            limit = (self._failed_at or 0) + self._most // 2 + 1 - self.left_out
            self.after += len(self.witness.entries) - limit
            del self.witness.entries[limit:]
            return
        self._sample(self._cells.changes())
        if len(self.witness.entries) > 2 * self._most:
            self._shorten()

    def _sample(self, changes: Changes) -> None:
        at = self.entries
        if changes or at > self._looked:
            self.samples.append(Sample(at, tuple((cell, *texts) for cell, texts in changes.items()), self._crash()))
        self._looked = at

    def _crash(self) -> str | None:
        """The fault that makes an actor die where the step ended: at its last visit of a point."""
        injector = self._view.execution.interference
        if not isinstance(injector, FaultInjector):
            return None
        passed = [one for one in injector.visited.passed if not one[0].startswith("user.") and one[1] != TORN]
        visits = injector.processes.visits
        if not passed:
            return None
        point, phase, actor = passed[-1]
        number = visits[point, phase, actor]
        if actor == JOB_MANAGER:
            # Of the job manager, the visits of all actors count.
            number = sum(visited for place, visited in visits.items() if place[:2] == (point, phase))
        return f"crash:{actor}@{phase}:{point}#{number}"

    def _shorten(self) -> None:
        """Leave out the oldest entries; how the process began stays, because the names of channels come with it."""
        entries = self.witness.entries
        drop = len(entries) - self._most
        if self._failed_at is not None:
            drop = min(drop, self._failed_at - self.left_out - self._most // 2)
        if drop <= 0:
            return
        kept = [one for one in entries[:drop] if isinstance(one, RunStarted)]
        entries[:drop] = kept
        self.left_out += drop - len(kept)
        cut = next((number for number, one in enumerate(self.samples) if one.at > self.left_out), len(self.samples))
        for sample in self.samples[:cut]:
            for cell, _, text in sample.changes:
                if text is None:
                    self.before.pop(cell, None)
                else:
                    self.before[cell] = text
        del self.samples[:cut]
