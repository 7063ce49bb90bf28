"""The jobs of a case in order, and the user who takes savepoints and starts each job from one of the job before.

A job that resumes from a savepoint is like one started by ``weir run --from``: it has its own storage directory, an
incarnation above all earlier ones, and perhaps other settings. Output and savepoints outlive all jobs.

Rules.
* Each order of a case is requested once, in the process that is alive at that instant. A failed request is not retried.
* A job that has stopped is resumed from its savepoint.
* A user who has been told that such a savepoint is complete resumes from it after a crash, too: a checkpoint is older,
  and from it the savepoint's commits would be repeated.
* A user cancels a job only if no newer checkpoint is complete by then: its commits would be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from engine.elements.errors import ConfigurationError
from engine.explore.cases import CANCEL, Case, Savepoint, Setting, run_config
from engine.explore.run.job_under_test import CHECKPOINTS_DIR, OUTPUT_DIR
from engine.graph.plan import ExecutionPlan
from engine.observe.provenance import Provenance
from engine.observe.trace_events import CheckpointCompleted, TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.faulted import PROCESS, Interference
from engine.runtime.job import SavepointOrder, SavepointReport
from engine.runtime.kernel import START_NS, ChoiceRecorder
from engine.runtime.storage import SavepointRestore, open_storage
from state_backends.files import FileSystem
from state_backends.snapshots import CheckpointStorage

SAVEPOINTS_DIR = "/savepoints"
"""On the disk of checkpoints, because checkpoints may refer to files of savepoints."""


@dataclass(frozen=True, slots=True)
class Start:
    """The savepoint that a job was started from, as ``order`` asked for it."""

    order: Savepoint
    checkpoint_id: int
    path: str

    @property
    def restore(self) -> SavepointRestore:
        return SavepointRestore(self.path, self.order.mode)


class Jobs:
    """The current job of a case, and its user's wishes. ``number`` counts from 1; ``start``: ``None`` = it begins from
    nothing; ``has_begun``: whether it has had a process; ``cancelled``: by its user, just now."""

    name = "user"

    def __init__(self, case: Case) -> None:
        """Raises :class:`ConfigurationError` when a job of the case would have invalid settings."""
        self._case = case
        self._settings: Mapping[str, Setting] = case.config
        self._asked = [False] * len(case.savepoints)
        self._reports: list[tuple[Savepoint, SavepointReport]] = []
        self._execution: Execution | None = None
        self.number = 1
        self.start: Start | None = None
        self.has_begun = self.cancelled = False
        self._stopped_in_vain = False
        self.config, self.parallelism = self._read(self._settings)
        for order in case.savepoints:
            self._read({**self._settings, **order.settings})
        if case.savepoints and not self.config.protocol.takes_checkpoints:
            raise ConfigurationError(
                f"a savepoint needs a mode that takes snapshots; in mode {self.config.mode} there are none"
            )

    def _read(self, settings: Mapping[str, Setting]) -> tuple[RunConfig, int | None]:
        config, parallelism = run_config(replace(self._case, config=settings)), settings.get("parallelism")
        assert parallelism is None or isinstance(parallelism, int), parallelism
        return config, parallelism

    @property
    def storage_dir(self) -> str:
        return CHECKPOINTS_DIR if self.number == 1 else f"{CHECKPOINTS_DIR}-{self.number}"

    @property
    def cancels(self) -> bool:
        """Whether the user waits for the completion of a savepoint in order to cancel the job."""
        return any(order.kind == CANCEL for order in self._case.savepoints)

    @property
    def has_stopped_in_vain(self) -> bool:
        """Whether tasks were notified of a savepoint with which the job then did not stop. As in Flink it restarts from
        a checkpoint, which is older: a sink that finds its output ahead of that may have to give up."""
        stops = (report for order, report in self._reports if order.stop is not None)
        return self._stopped_in_vain or any(one.path is not None and one.error is not None for one in stops)

    @property
    def may_be_refused(self) -> bool:
        """Whether the job's savepoint may have a form that its state backend does not read."""
        return self.start is not None and self.start.order.native and "state_backend" in self.start.order.settings

    @contextmanager
    def process(
        self,
        plan: ExecutionPlan,
        checkpoints: FileSystem,
        files: FileSystem,
        behind: int,
        choices: ChoiceRecorder,
        interference: Interference | None,
        instruments: Sequence[Callable[[TraceEvent], None]] = (),
        provenance: Provenance | None = None,
    ) -> Iterator[Execution]:
        """The next process of the job, which holds its storage directory. ``behind``: the incarnation of the previous
        job, if this process is the first one of another job."""
        inline, start = self.config.inline_state_bytes, self.start
        with open_storage(
            self.storage_dir, plan.job_name, inline_state_bytes=inline, file_system=checkpoints, behind=behind
        ) as opened:
            yield Execution(
                plan,
                self.config,
                storage=opened.storage,
                file_system=files,
                savepoint_files=checkpoints,
                output_dir=OUTPUT_DIR,
                incarnation=opened.incarnation,
                instruments=instruments,
                restore=self.has_begun,
                restore_from=None if start is None else start.restore,
                choices=choices,
                interference=interference,
                provenance=provenance,
            )

    # -- actions of the user ------------------------------------------------------------------------------------------

    def attend(self, execution: Execution) -> None:
        self._execution, self.has_begun, self.cancelled = execution, True, False
        self._forget_reports()
        for number, order in enumerate(self._case.savepoints):
            if not self._asked[number]:
                execution.appoint(START_NS + order.at_ns, "savepoint_is_due", self, number)

    def savepoint_is_due(self, number: int) -> None:
        """The instant of an order has come (kernel event)."""
        assert self._execution is not None, "a process runs"
        self._asked[number] = True
        order, manager = self._case.savepoints[number], self._execution.manager
        asked = manager.savepoints.order(SavepointOrder(order.at_ns, SAVEPOINTS_DIR, order.form, order.stop))
        self._reports.append((order, manager.savepoints.reports[asked]))
        manager.trigger_savepoint(asked)

    def hear(self, event: TraceEvent) -> None:
        """Completed savepoints (as an instrument)."""
        if event.__class__ is CheckpointCompleted:
            assert self._execution is not None, "a process runs"
            if event.checkpoint_id in self._execution.manager.files.savepoint_locations:
                # Only after the job manager knows.
                self._execution.kernel.schedule(event.time_ns + 1, "savepoint_is_complete", self, None)

    def savepoint_is_complete(self, _payload: None) -> None:
        """The user is told (kernel event)."""
        execution = self._execution
        assert execution is not None, "a process runs"
        storage = execution.manager.files.storage
        newest = self._newest_report(storage.file_system, execution.plan.job_name)
        if newest is not None and newest[0].kind == CANCEL and not execution.manager.is_over:
            self.cancelled = True
            execution.condemn(PROCESS, "its user cancelled the job")

    def fingerprint(self) -> object:
        """The state that decides the user's next action and the start of jobs; empty where no savepoints are taken."""
        if not self._asked:
            return None
        told = tuple((order.at_ns, report.checkpoint_id, report.path) for order, report in self._reports)
        begun = (self.number, self.start and self.start.path, self.has_begun)
        return (begun, tuple(self._asked), told, self.has_stopped_in_vain)

    def _forget_reports(self) -> None:
        self._stopped_in_vain = self.has_stopped_in_vain
        self._reports.clear()

    def may_go_on(self, disk: FileSystem) -> bool:
        """Whether the user has a savepoint for :meth:`goes_on`: a job that did not stop properly names it, and may fail
        for good because the output is ahead of its checkpoints."""
        assert self._execution is not None, "a process has run"
        return self._newest_report(disk, self._execution.plan.job_name) is not None

    def goes_on(self, disk: FileSystem) -> bool:
        """A process has ended or died, and ``disk`` is left. Returns whether the user starts a new job, which is the
        current one from then on."""
        assert self._execution is not None, "a process has run"
        found = self._newest_report(disk, self._execution.plan.job_name)
        self._forget_reports()
        if found is None:
            return False
        order, report = found
        assert report.checkpoint_id is not None, report
        assert report.path is not None, report
        self.start = Start(order, report.checkpoint_id, report.path)
        self.number += 1
        self.has_begun = False
        self._settings = {**self._settings, **order.settings}
        self.config, self.parallelism = self._read(self._settings)
        return True

    def _newest_report(self, disk: FileSystem, job_name: str) -> tuple[Savepoint, SavepointReport] | None:
        """The savepoint that the user resumes from, if there is one that is newer than every checkpoint."""
        complete = [one for one in self._reports if one[0].ends_job and one[1].path is not None]
        if not complete:
            return None
        newest = max(complete, key=lambda one: one[1].checkpoint_id or 0)
        checkpoints = CheckpointStorage(disk, self.storage_dir, job_name).list_checkpoints()
        return newest if max(checkpoints, default=0) < (newest[1].checkpoint_id or 0) else None
