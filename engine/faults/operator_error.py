"""Mistakes of the operator who resumes a job: an older checkpoint, another job's directory, operators with other uids.

An opportunity is a resume (the first start does not count). A mistake that must be *refused* is really made, on the
files of the case, and the proper resume follows. If it is not refused, that is a bug of the engine, and the case ends
with an :class:`AssertionError` that names it. Going back to an *older* checkpoint is not refused, but the engine must
repair its consequences. Sinks take back output that newer checkpoints had committed, or report that they cannot. They
must never skip repeated output because it looks committed already (apache/iceberg#10892).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from engine.elements.errors import JobChangedError, StorageError, WeirError
from engine.faults.fault import Fault, FaultMix
from engine.faults.opportunities import Opportunities, Struck
from engine.graph.plan import ExecutionPlan, OperatorPlan
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage

_KINDS = ("restore-older", "wrong-directory", "change-uids")
_RESUME = "resume"


class OperatorErrors:
    """The mistakes of one case."""

    def __init__(self, faults: Sequence[Fault], mix: FaultMix, struck: Struck) -> None:
        self._resumes = Opportunities(_KINDS, faults, mix, struck, fits=lambda fault, name: True)
        self._starts = 0

    def before_process(self, plan: ExecutionPlan, disk: FileSystem, base_dir: str) -> None:
        """A process is about to be started from the files of ``disk`` below ``base_dir``. Raises
        :class:`AssertionError` when a mistake is not refused."""
        self._starts += 1
        if self._starts == 1 or not self._resumes.is_armed:
            return
        storage = CheckpointStorage(disk, base_dir, plan.job_name)
        completed = storage.list_checkpoints()
        possible = _KINDS if len(completed) > 1 else _KINDS[1:] if completed else ()
        fault = self._resumes.strike(_RESUME, possible)
        if fault is None:
            return
        if fault.kind == "restore-older":
            _go_back(storage, disk, completed, max(1, fault.amount))
        elif fault.kind == "wrong-directory":
            another = replace(plan, job_name=f"another {plan.job_name}")
            _must_be_refused(another, storage, StorageError, "with the checkpoints of another job")
        else:
            renamed = plan.with_operators(_renamed)
            _must_be_refused(renamed, storage, JobChangedError, "with operators under other uids")

    @property
    def unused(self) -> tuple[Fault, ...]:
        return self._resumes.unused


def _go_back(storage: CheckpointStorage, disk: FileSystem, completed: Sequence[int], steps: int) -> None:
    """As if by hand: delete the newest checkpoints; no file records that their numbers were used."""
    for checkpoint_id in completed[max(1, len(completed) - steps) :]:
        disk.delete_tree(storage.location(checkpoint_id).directory)
    disk.fsync_dir(posixpath.dirname(storage.location(completed[0]).directory))


def _renamed(operator: OperatorPlan) -> OperatorPlan:
    return replace(operator, uid=f"{operator.uid}-renamed", generated_uid=None)


def _must_be_refused(plan: ExecutionPlan, storage: CheckpointStorage, refusal: type[WeirError], how: str) -> None:
    execution = Execution(plan, RunConfig(), storage=storage, file_system=MemoryFileSystem(), restore=True)
    try:
        execution.run()
    except refusal:
        return
    raise AssertionError(f"a resume {how} was not refused: {storage.job_dir}")
