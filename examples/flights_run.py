"""One run of the flights job: undisturbed, or with a task killed, watched by the cut oracle."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from engine import read_committed
from engine.faults.fault_plan import parse_kill
from engine.graph.plan import ExecutionPlan
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace import TraceDigest
from engine.observe.trace_events import CheckpointCut, TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage import open_storage
from engine.view import Recorder
from examples.flights import flights_job
from examples.flights_data import FlightFiles
from state_backends.files import FileSystem, LocalFileSystem


@dataclass
class Run:
    """One run of the job and the place of its output."""

    directory: Path
    file_system: FileSystem
    result: ExecutionResult
    oracle: CutOracle
    cuts: dict[int, CheckpointCut]
    trace_digest: str
    seconds: float
    count_channels: frozenset[int]
    config: RunConfig = field(default_factory=RunConfig)

    def committed(self, answer: str) -> dict[str, list[str]]:
        """Visible lines of one answer, sorted, per partition."""
        return read_committed(self.file_system, str(self.directory / answer))

    def predicted_duplicates(self) -> int:
        """The cut oracle's count for the checkpoint that the job was restored from: records after the cut whose
        effect on the running counts is in the snapshot all the same."""
        restored = [restore.checkpoint_id for restore in self.result.restores if restore.checkpoint_id is not None]
        return sum(
            max(0, received - sent)
            for checkpoint_id in restored
            for channel, sent, received in self.cuts[checkpoint_id].differences
            if channel in self.count_channels
        )


def run_flights(
    files: FlightFiles,
    directory: Path,
    config: RunConfig,
    *,
    kill: str | None = None,
    file_system: FileSystem | None = None,
    recorder: Recorder | None = None,
) -> Run:
    """Run the job once, below ``directory``, which is emptied first.

    ``kill`` is ``'count[0]@70ms'`` or the like; ``file_system`` holds the flights and receives the output, ``None`` =
    the real one; ``recorder`` records the run. Raises the job's error when it fails.
    """
    disk = LocalFileSystem() if file_system is None else file_system
    disk.delete_tree(str(directory))
    plan = flights_job(files).plan()
    oracle, digest = CutOracle(), TraceDigest()
    cuts: dict[int, CheckpointCut] = {}

    def keep_cuts(event: TraceEvent) -> None:
        if isinstance(event, CheckpointCut):
            cuts[event.checkpoint_id] = event

    started = time.perf_counter()
    with open_storage(str(directory / "checkpoints"), plan.job_name, file_system=disk) as opened:
        observers = (oracle, digest, keep_cuts)
        execution = Execution(
            plan if recorder is None else recorder.of_run(plan, str(directory)),
            config,
            storage=opened.storage,
            file_system=disk,
            incarnation=opened.incarnation,
            output_dir=str(directory),
            instruments=observers if recorder is None else (*observers, recorder.observe),
        )
        if kill is not None:
            fault = parse_kill(kill)
            execution.kill(fault.target, fault.at_ns)
        result = (execution.run() if recorder is None else recorder.run(execution)).raise_on_failure()
    seconds = time.perf_counter() - started
    return Run(directory, disk, result, oracle, cuts, digest.hexdigest(), seconds, counting_channels(plan), config)


def counting_channels(plan: ExecutionPlan) -> frozenset[int]:
    """The channels that lead to the running counts."""
    counting = {vertex.index for vertex in plan.vertices for operator in vertex.operators if operator.name == "count"}
    return frozenset(channel.index for channel in plan.channels if channel.receiver_vertex in counting)
