"""What a snapshot costs in virtual time, and what the checkpoint table reports about it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.coordinator import SubtaskCheckpointMetrics
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.runtime.config import CostModel
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.runtime.support import every, execution, files_below, running_count

US = 1_000
LATENCY_NS = 7 * US


def first_checkpoint(job: Job, **settings: Any) -> tuple[dict[int, SubtaskCheckpointMetrics], list[str]]:
    """The reports of a job's tasks about its first checkpoint, by vertex, and the names of the files that it has."""
    files = MemoryFileSystem()
    made = execution(
        job, file_system=files, batch_size=4, retained=100, checkpoint_interval=every(ns=20 * US), **settings
    )
    row = made.run().raise_on_failure().checkpoints.rows()[0]
    names = {path.rsplit("/", 1)[1] for path in files_below(files) if "/chk-" in path or "/shared/" in path}
    # A name ends with the checkpoint and a number.
    return {report.task[0]: report.metrics for report in row.subtasks}, sorted(
        name for name in names if name.split("-")[-2:-1] == [str(row.checkpoint_id)]
    )


BACKENDS: tuple[dict[str, Any], ...] = (
    {"state_backend": "heap"},
    {"state_backend": "heap", "snapshot": "incremental"},
    {"state_backend": "lsm", "snapshot": "incremental"},
    {"state_backend": "changelog"},
)


@pytest.mark.parametrize("inline_state_bytes", [0, 150, 20 * 1024])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: "-".join(backend.values()))
def test_storage_latency_is_paid_once_per_file(backend: dict[str, Any], inline_state_bytes: int) -> None:
    """However many steps a snapshot has; state that stays in the metadata is in no file and is not charged."""
    reports, names = first_checkpoint(
        running_count(Job("files"), 100, [], keys=20),
        cost=CostModel(storage_latency_ns=LATENCY_NS),
        inline_state_bytes=inline_state_bytes,
        **backend,
    )

    of_source = sum(name.startswith("numbers-") for name in names)
    written = {0: of_source, 1: len(names) - of_source}
    assert {task: report.async_ns for task, report in reports.items()} == {
        task: files * LATENCY_NS for task, files in written.items()
    }
    if not inline_state_bytes:
        assert written[0] == 1
        assert written[1] >= 1


class Pinning(Operator):
    """Takes some time for the synchronous part of a snapshot, and some before the barrier."""

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        self.context.spend(3 * US)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.context.spend(11 * US)


def test_the_synchronous_part_lasts_as_long_as_operators_spend_in_it() -> None:
    """The asynchronous part begins after it, and the time spent before the barrier belongs to neither."""
    job = Job("pinning").source(SequenceSource(0, 60), name="numbers").rebalance()
    reports, _ = first_checkpoint(job.via(Pinning, name="pinning").collect([]), cost=CostModel())

    assert {task: (report.sync_ns, report.async_ns) for task, report in reports.items()} == {0: (0, 0), 1: (11 * US, 0)}
