"""Files that vanish between a checkpoint and their commit: the run says that it has lost them, whatever the sink."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest

from engine import CollectionSource, Job
from engine.faults.fault_plan import FaultPlan
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointCompleted, TraceEvent
from engine.report.verdict import judge_run
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.files.bucketing import BucketingSink
from operators.files.compaction import CompactionStrategy
from operators.files.sinks import FileSink
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink, TableCompaction
from operators.table.staging.staged_sink import StagedFileSink
from state_backends.files import MemoryFileSystem

STRIKES_AT = 2
"""The checkpoint after which files vanish."""


class Thief:
    """Deletes files below ``/out`` as soon as a checkpoint is complete, before any sink hears of it."""

    def __init__(self, disk: MemoryFileSystem, wanted: str) -> None:
        self._disk = disk
        self._wanted = wanted
        self.taken: list[str] = []

    def __call__(self, event: TraceEvent) -> None:
        if isinstance(event, CheckpointCompleted) and event.checkpoint_id == STRIKES_AT:
            for path in list(self._disk.walk_files("/out")):
                if self._wanted in posixpath.basename(path):
                    self.taken.append(path)
                    self._disk.delete(path)


def run(sink: Any, wanted: str | None, *kills: str) -> tuple[ExecutionResult, Any, list[str]]:
    """The result, the verdict, and the files that were taken."""
    job = Job("thieves")
    records = [{"day": f"d{number % 2}", "n": number} for number in range(300)]
    job.source(CollectionSource(records), name="numbers").sink(sink, name="out", uid="out")
    config = RunConfig(checkpoint_interval=CheckpointInterval.parse("50rec"), batch_size=5)
    disk, oracle = MemoryFileSystem(), CutOracle()
    thief = Thief(disk, wanted or "no such file")
    execution = Execution(job.plan(), config, file_system=disk, output_dir="/out", instruments=[oracle, thief])
    FaultPlan.parse(kills, ()).install(execution)
    result = execution.run()
    return result, judge_run(result, oracle, config.protocol), thief.taken


SINKS = {
    "row": (lambda: FileSink("rows"), ".inprogress."),
    "committers": (lambda: FileSink("rows").with_committer(), ".inprogress."),
    "bucketing": (lambda: BucketingSink("rows", batch_size_bytes=100), ".pending"),
    "partitioned": (lambda: PartitionedFileSink("rows", partition_by=["day"]), ".inprogress."),
    "partitioned, compacting": (
        lambda: PartitionedFileSink("rows", partition_by=["day"], compaction=TableCompaction()),
        ".inprogress.",
    ),
    "staged": (lambda: StagedFileSink("rows"), "-file-"),
}


@pytest.mark.parametrize("name", SINKS)
def test_pending_files_that_vanish_violate_the_promise(name: str) -> None:
    """The job goes on without them, and its verdict is *violated*, with exit code 1 and the name of a file."""
    create, wanted = SINKS[name]
    result, verdict, taken = run(create(), wanted)

    assert taken
    assert result.state == "finished", result.error
    assert result.losses
    assert verdict.name == "violated"
    assert verdict.exit_code == 1
    assert "neither pending nor committed" in verdict.reason


@pytest.mark.parametrize("name", SINKS)
def test_files_that_a_dead_attempt_has_committed_are_no_loss(name: str) -> None:
    """A restore finds them under their final names, or compacted into another file."""
    create, _ = SINKS[name]
    result, verdict, _ = run(create(), None, "numbers[0]@130us")

    assert result.attempts == 2
    assert result.losses == ()
    assert verdict.name == "valid"


def test_files_that_vanish_from_a_sink_that_compacts_are_a_loss() -> None:
    """Pending compacted ones are reported; without the others, compaction fails and so does the job."""
    sink = FileSink("rows").compacting(CompactionStrategy(checkpoints=1))
    result, verdict, taken = run(sink, ".inprogress.")

    assert taken
    assert result.losses
    assert verdict.name == "violated"
    assert "was to be compacted but is gone" in str(result.error and result.error.__cause__)
