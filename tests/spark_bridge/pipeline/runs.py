"""Runs of one job in the simulator and in batches, over one storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import Job
from engine.graph.plan import ExecutionPlan
from engine.observe.cut_oracle import CutOracle
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage import open_storage
from spark_bridge.pipeline import BatchExecution
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.stage_function import StageOrder
from spark_bridge.pipeline.turns import writes_elsewhere
from tests.spark_bridge.pipeline.local_stages import LocalStages

MOST_BATCHES = 60


class StoppedError(BaseException):
    """The process of the driver is gone."""


def config(records: int = 150, **options: Any) -> RunConfig:
    return RunConfig(checkpoint_interval=CheckpointInterval(records=records), **options)


def writes(order: StageOrder) -> bool:
    """Whether a subtask of this stage may write anything but its state."""
    vertices = order.batch.plan.vertices
    return any(writes_elsewhere(vertices[one.vertex]) for one in order.stage.subtasks)


def simulated(job: Job, directory: Path, settings: RunConfig, *, killed_at_ns: int | None = None) -> ExecutionResult:
    """Run to the end in the simulator, going on from the newest checkpoint if there is one. ``killed_at_ns``: all
    tasks of the last vertex die then."""
    with open_storage(str(directory / "state"), job.name) as opened:
        execution = Execution(
            job.plan(),
            settings,
            storage=opened.storage,
            incarnation=opened.incarnation,
            output_dir=str(directory / "out"),
            restore=True,
        )
        if killed_at_ns is not None:
            execution.kill(job.plan().vertices[-1].name, killed_at_ns)
        return execution.run()


def in_batches(
    job: Job,
    directory: Path,
    settings: RunConfig,
    *,
    stop_after: int | None = None,
    watch: Callable[[BatchDriver], None] | None = None,
    seed: int = 0,
    stages: LocalStages | None = None,
) -> tuple[ExecutionResult, CutOracle]:
    """Run in batches, going on from the newest checkpoint if there is one; to the end, or until so many batches are
    complete. ``watch`` is called with the driver before the first one.
    ``stages``: what runs the batches."""
    oracle = CutOracle()
    stages = LocalStages(seed) if stages is None else stages

    def run_all(driver: BatchDriver) -> None:
        done = 0
        while not driver.is_over and done != stop_after:
            driver.run_batch()
            done += 1
            assert done < MOST_BATCHES, "the job makes no progress"

    with open_storage(str(directory / "state"), job.name) as opened:
        execution = BatchExecution(
            job.plan(),
            settings,
            storage=opened.storage,
            incarnation=opened.incarnation,
            output_dir=str(directory / "out"),
            run_batch=stages.run,
            run_all=run_all,
            restore=True,
            instruments=[oracle],
        )
        if watch is not None:
            watch(execution.driver)
        return execution.run(), oracle


def local_execution(plan: ExecutionPlan, settings: RunConfig, *, master: str | None, **options: Any) -> BatchExecution:
    """In place of :func:`spark_bridge.pipeline.spark_execution`: the same run in this process, without Spark."""

    def run_all(driver: BatchDriver) -> None:
        while not driver.is_over:
            driver.run_batch()
            assert len(driver.committed) < MOST_BATCHES, "the job makes no progress"

    return BatchExecution(plan, settings, run_batch=LocalStages(1).run, run_all=run_all, **options)
