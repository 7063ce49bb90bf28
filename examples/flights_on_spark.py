"""The flights job on Spark: its driver dies once and begins anew, and the proof is that of a run in the simulator.

The driver dies at the worst moment: a checkpoint is durable, and its sinks have not committed. Executors do the work
of both lives, and one storage directory joins them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointCut, Instrument, TraceEvent
from engine.runtime.config import CheckpointInterval, RunConfig, SparkCluster
from engine.runtime.execution import ExecutionResult
from engine.runtime.kernel import START_NS
from engine.runtime.storage import open_storage
from examples.flights import flights_job
from examples.flights_data import FlightFiles
from examples.flights_run import Run, counting_channels
from spark_bridge.pipeline import BatchExecution, spark_execution
from state_backends.files import LocalFileSystem

DIES_AT_CHECKPOINT = 3


class DriverDiedError(Exception):
    """The driver is gone in the middle of its work."""


def run_on_spark(files: FlightFiles, directory: Path, interval: CheckpointInterval, cluster: SparkCluster) -> Run:
    """Run the job below ``directory``, which is emptied first; its driver dies at checkpoint 3, and another goes on.

    Raises the job's error when it fails.
    """
    directory, disk = directory.absolute(), LocalFileSystem()
    disk.delete_tree(str(directory))
    plan = flights_job(files).plan()
    oracle, cuts = CutOracle(), dict[int, CheckpointCut]()
    lives: list[BatchExecution] = []

    def watch(event: TraceEvent) -> None:
        if isinstance(event, CheckpointCut):
            cuts[event.checkpoint_id] = event

    def die(event: TraceEvent) -> None:
        if isinstance(event, CheckpointCut) and event.checkpoint_id == DIES_AT_CHECKPOINT:
            raise DriverDiedError

    def live(instruments: Sequence[Instrument]) -> ExecutionResult:
        with open_storage(str(directory / "checkpoints"), plan.job_name, file_system=disk) as opened:
            execution = spark_execution(
                plan,
                RunConfig(checkpoint_interval=interval),
                master=cluster.master,
                storage=opened.storage,
                incarnation=opened.incarnation,
                output_dir=str(directory),
                restore=True,
                instruments=instruments,
            )
            lives.append(execution)
            return execution.run().raise_on_failure()

    started = time.perf_counter()
    try:
        result = live([oracle, watch, die])
    except DriverDiedError:
        result = live([oracle, watch])
    result = replace(
        result,
        attempts=len(lives),
        started_ns=START_NS,
        restores=tuple(replace(one, attempt=len(lives)) for one in result.restores),
        source_records=sum(one.driver.source_records for one in lives),
    )
    seconds = time.perf_counter() - started
    return Run(directory, disk, result, oracle, cuts, "", seconds, counting_channels(plan))
