"""``--on spark[=MASTER]``: the same job, run by the executors of a Spark cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine.elements.errors import ConfigurationError
from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import Instrument
from engine.runtime.config import SIMULATOR, RunConfig, SparkCluster
from engine.runtime.execution import ExecutionResult

if TYPE_CHECKING:
    from engine.cli.runs.driver import RunOrder
    from engine.explore.search import Chunk, Hire

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def on_option(command: CommandT) -> CommandT:
    """The option ``--on``."""
    text = (
        "Run the job on Spark, on two local cores or the cluster with this URL, or in the simulator."
        " [default: simulator; with weir resume: where the job ran last]"
    )
    return click.option("--on", "on", metavar="spark[=MASTER]", help=text)(command)


def spread_option(command: CommandT) -> CommandT:
    """The option ``--on`` of verbs that make many runs in the simulator."""
    text = "Have executors make the runs, on two local cores or the Spark cluster with this URL."
    return click.option("--on", "on", metavar="spark[=MASTER]", help=text)(command)


def check_where(where: SparkCluster | None, storage: str | None, only_simulated: Sequence[tuple[str, object]]) -> None:
    """Raises :class:`ConfigurationError` when a run on Spark lacks a place for its checkpoints, or is asked for what
    only a simulation can do. ``only_simulated``: names of such options, with their values."""
    if where is None:
        return
    for option, value in only_simulated:
        if value:
            raise ConfigurationError(
                f"{option} works in the simulator only\n  fix: leave it out, or use --on {SIMULATOR}"
            )
    if storage is None:
        raise ConfigurationError(
            "--on spark needs a directory for checkpoints that all executors see\n  fix: add --storage DIR"
        )
    if "://" in storage:
        raise ConfigurationError(
            f"--on spark with --storage {storage}: checkpoints of a run on Spark lie in a directory\n"
            "  fix: name a directory that all executors see"
        )


def check_job(where: SparkCluster | None, plan: ExecutionPlan, config: RunConfig) -> None:
    """Raises, before anything is created, what is wrong with a run on Spark as far as this machine can tell: operators
    that cannot run there, a mode that does not exist, PySpark or Java that is missing or too old."""
    if where is not None:
        from spark_bridge.pipeline import check_installed, check_plan

        check_plan(plan, config)
        check_installed()


def costs_of_batches(since: float) -> list[str]:
    """What the functions of DataFrames have cost, by the wall clock: a line if some have run since that moment of
    ``time.perf_counter()``. Nothing of Spark is loaded for it."""
    times = sys.modules.get("spark_bridge.batch_times")
    if times is None:
        return []
    told = times.told_times([one for one in times.batch_times() if one.started >= since])
    return [told] if told else []


def run_on_spark(
    order: RunOrder, plan: ExecutionPlan, config: RunConfig, instruments: Sequence[Instrument]
) -> ExecutionResult:
    """Make the run. The first import starts nothing; the first batch waits for Spark."""
    from spark_bridge.pipeline import spark_execution

    assert order.on is not None
    assert order.storage is not None
    execution = spark_execution(
        plan,
        config,
        master=order.on.master,
        storage=order.storage,
        incarnation=order.incarnation,
        output_dir=order.output_dir,
        restore=order.restore,
        restore_from=order.restore_from,
        instruments=instruments,
    )
    return execution.run()


def explain_on_spark(plan: ExecutionPlan, config: RunConfig) -> str:
    """The stages of a job that can run on Spark."""
    from spark_bridge.pipeline import check_plan, explain_stages

    check_plan(plan, config)
    return explain_stages(plan)


def check_search(where: SparkCluster | None, only_here: Sequence[tuple[str, object]]) -> None:
    """Raises, before anything is created, what is wrong with a search on Spark: PySpark or Java that is missing, or
    options that only searches in processes of this machine have. ``only_here``: names of such options, with their
    values."""
    if where is None:
        return
    for option, value in only_here:
        if value:
            raise ConfigurationError(
                f"{option} and --on exclude each other: on Spark all cores that executors have make runs, with files in"
                f" memory\n  fix: leave {option} or --on out"
            )
    from spark_bridge.pipeline import check_installed

    check_installed()


def search_on_spark(where: SparkCluster) -> tuple[int, Hire[Chunk]]:
    """How many cores executors have, and what has these make the runs of a search. Starts the session."""
    from spark_bridge.executor_pool import ExecutorPool, pool_session

    session = pool_session(where.master, "engine.explore.search", "engine.job_runner")
    return session.sparkContext.defaultParallelism, lambda _jobs, make: ExecutorPool(session, make)
