"""The surroundings of a run with faults from ``--fault``: the injector, and the disks with the injector in front of
them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.elements.errors import JobFailedError, WeirError
from engine.graph.plan import ExecutionPlan
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.faulted import ProcessDiedError
from engine.runtime.kernel import ChoiceRecorder
from state_backends.files import FileSystem, LocalFileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage

if TYPE_CHECKING:
    from engine.cli.runs.driver import RunOrder
    from engine.faults.injector import FaultInjector


class RunDiedError(WeirError):
    """A fault has killed the whole run."""

    exit_code = JobFailedError.exit_code


@dataclass(frozen=True, slots=True)
class RunSurroundings:
    """The parts that an execution gets; without faults they are the plain ones."""

    plan: ExecutionPlan
    storage: CheckpointStorage | None
    file_system: FileSystem | None = None
    choices: ChoiceRecorder | None = None
    injector: FaultInjector | None = None

    def install(self, execution: Execution) -> None:
        if self.injector is not None:
            self.injector.install(execution)

    def unused(self) -> list[str]:
        return [] if self.injector is None else [str(fault) for fault in self.injector.unused]


def surroundings(order: RunOrder, config: RunConfig, plan: ExecutionPlan) -> RunSurroundings:
    """Those of a run of ``plan``. Raises :class:`ConfigurationError` when a fault is invalid."""
    faults = order.faults.faults
    # A page says for each step which fault crashes there: the injector counts the visits.
    if not faults and order.html is None:
        return RunSurroundings(plan, order.storage)
    from engine.faults.external import sinks_outside
    from engine.faults.injector import FaultInjector
    from operators.log.disk import DiskLog

    choices = ChoiceRecorder(config.seed)
    injector = FaultInjector(faults, choices=choices)
    storage = order.storage
    if storage is None:
        name, limit = order.loaded.job.name, config.inline_state_bytes
        storage = CheckpointStorage(MemoryFileSystem(), "/checkpoints", name, inline_threshold_bytes=limit)
    storage = storage.seen_through(injector.wrap(storage.file_system, "checkpoints"))
    written = [getattr(sink, "log", None) for sink in sinks_outside(plan).values()]
    logs = [os.path.join(order.output_dir, log.path) for log in written if isinstance(log, DiskLog)]
    files = injector.wrap(LocalFileSystem(), "files", logs)
    return RunSurroundings(injector.in_run(plan), storage, files, choices, injector)


@contextmanager
def survived(order: RunOrder) -> Iterator[None]:
    """If a fault kills the process of the run, end with an error that says how to resume. Raises :class:`RunDiedError`
    then."""
    try:
        yield
    except ProcessDiedError as died:
        advice = "with --storage DIR it could go on from its newest checkpoint"
        if order.storage_dir is not None:
            advice = f"go on with {shlex.join(['weir', 'resume', order.storage_dir])}"
        raise RunDiedError(f"the process of the run was {died.cause}, as a --fault has asked for\n  {advice}") from died
