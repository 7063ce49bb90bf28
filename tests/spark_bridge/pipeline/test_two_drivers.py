"""One storage, two drivers: the lock refuses the second while the first lives; its workers may live longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine import DefaultRollingPolicy, FileSink, Job, SequenceSource, StorageError
from engine.cli import main
from engine.elements.batch import Batch
from engine.runtime.config import RunConfig
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskBatch, SubtaskReport
from spark_bridge.session import session_is_running
from state_backends.files import LocalFileSystem
from state_backends.snapshots import WORKING_DIR_NAME
from tests.house.project import ROOT
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.local_stages import LocalStages
from tests.spark_bridge.pipeline.runs import StoppedError, config, in_batches, simulated


def counted(parallelism: int = 2) -> Job:
    """Counts per key, into parts that stay open over several checkpoints."""
    job = Job("counted", parallelism=parallelism)
    numbers = job.source(SequenceSource(0, 600, splits=2), name="numbers").map(lambda number: (number % 5, 1))
    counts = numbers.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]), name="count")
    counts.sink(FileSink("rows", rolling_policy=DefaultRollingPolicy(max_part_size_bytes=1_000)), uid="sink")
    return job


def test_a_second_driver_is_refused_while_the_first_is_in_a_batch(tmp_path: Path) -> None:
    """And disturbs nothing: the first comes to its end."""
    refused = []

    def meanwhile(driver: BatchDriver) -> None:
        inner = driver.run

        def run(order: BatchOrder) -> Sequence[SubtaskReport]:
            with pytest.raises(StorageError, match="in use by"):
                in_batches(counted(), tmp_path, config(100))
            refused.append(order.barrier.checkpoint_id)
            return inner(order)

        driver.run = run

    result, oracle = in_batches(counted(), tmp_path, config(100), watch=meanwhile)
    assert result.error is None, result.error
    assert len(refused) >= 3
    assert result.incarnation == 1
    assert oracle.held


def test_the_command_line_refuses_it_before_spark_starts(tmp_path: Path) -> None:
    """As for a run in the simulator: the same lock, taken first."""
    was_running = session_is_running()
    state = str(tmp_path / "state")
    job = ["run", str(ROOT / "examples/wordcount.py"), "--param", "repeat=5", "--storage", state]
    assert CliRunner().invoke(main, job).exit_code == 0
    lock = LocalFileSystem().lock_directory(state)
    try:
        result = CliRunner().invoke(main, ["resume", state, "--on", "spark"])
    finally:
        lock.release()
    assert result.exit_code == StorageError.exit_code, result.output
    assert "is in use by process" in result.output
    assert session_is_running() == was_running


def _dies_in(checkpoint_id: int, dies: Callable[[BatchOrder], None]) -> Callable[[BatchDriver], None]:
    def watch(driver: BatchDriver) -> None:
        inner = driver.run

        def run(order: BatchOrder) -> Sequence[SubtaskReport]:
            if order.barrier.checkpoint_id == checkpoint_id:
                dies(order)
                raise StoppedError
            return inner(order)

        driver.run = run

    return watch


def _after_each_batch(work: Callable[[], object]) -> Callable[[BatchDriver], None]:
    def watch(driver: BatchDriver) -> None:
        inner = driver.run

        def run(order: BatchOrder) -> Sequence[SubtaskReport]:
            reports = inner(order)
            work()
            return reports

        driver.run = run

    return watch


INLINED, IN_FILES = config(100), config(100, inline_state_bytes=0)


@pytest.mark.parametrize("settings", [INLINED, IN_FILES], ids=["inlined", "in-files"])
def test_workers_of_a_dead_driver_begin_nothing(settings: RunConfig, tmp_path: Path) -> None:
    """They would restore the sink as it was, and hide or delete what the next driver has written."""
    orders: list[BatchOrder] = []
    with pytest.raises(StoppedError):
        in_batches(counted(), tmp_path / "run", settings, watch=_dies_in(3, orders.append))
    reports: list[SubtaskReport] = []
    ghost = _after_each_batch(lambda: reports.extend(LocalStages().run(orders[0])))
    result, oracle = in_batches(counted(), tmp_path / "run", settings, watch=ghost)
    assert result.error is None, result.error
    assert len(reports) >= 3
    assert {type(report.error) for report in reports} == {StorageError}
    assert "checkpoint 3 and incarnation 1 is over" in str(reports[0].error)
    assert "has checkpoint 2 and incarnation 2" in str(reports[0].error)
    simulated(counted(), tmp_path / "undisturbed", settings)
    assert jobs.committed(tmp_path / "run/out") == jobs.committed(tmp_path / "undisturbed/out")
    assert oracle.held


def test_a_worker_that_is_late_begins_nothing_of_a_batch_that_is_over(tmp_path: Path) -> None:
    """Also of its own driver, which has given it up."""
    orders: list[BatchOrder] = []

    def keep(driver: BatchDriver) -> None:
        run = driver.run
        driver.run = lambda order: orders.append(order) or run(order)  # type: ignore[func-returns-value]

    in_batches(counted(), tmp_path, config(100), watch=keep, stop_after=2)
    for order in orders:
        reports = LocalStages().run(order)
        assert {type(report.error) for report in reports} == {StorageError}
        assert "and incarnation 1 is over" in str(reports[0].error)


@pytest.mark.parametrize("settings", [INLINED, IN_FILES], ids=["inlined", "in-files"])
def test_workers_of_a_dead_driver_may_end_what_they_have_begun(settings: RunConfig, tmp_path: Path) -> None:
    """Their files have names of their own, and no metadata lists them."""
    ghosts: list[SubtaskBatch] = []

    def begin(order: BatchOrder) -> None:
        ghosts.extend(SubtaskBatch(order, one) for one in order.plan.subtasks if one.input_channels)

    with pytest.raises(StoppedError):
        in_batches(counted(), tmp_path / "run", settings, watch=_dies_in(3, begin))
    assert len(ghosts) == 2
    pairs = [(number % 5, 1) for number in range(50)]

    def haunt() -> None:
        while ghosts:
            ghost = ghosts.pop()
            channel = counted().plan().subtasks[ghost.report.subtask].input_channels[0]
            ghost.take(channel, [Batch(pairs, None, [key for key, _ in pairs])])
            list(ghost.finish())

    result, oracle = in_batches(counted(), tmp_path / "run", settings, watch=_after_each_batch(haunt))
    assert result.error is None, result.error
    simulated(counted(), tmp_path / "undisturbed", settings)
    assert jobs.committed(tmp_path / "run/out") == jobs.committed(tmp_path / "undisturbed/out")
    assert oracle.held


def test_working_files_of_a_dead_driver_are_deleted(tmp_path: Path) -> None:
    """Its workers have left them; nothing names them any more."""
    in_batches(counted(), tmp_path, config(100), stop_after=1)
    left = tmp_path / "state" / "counted" / WORKING_DIR_NAME / "left"
    left.mkdir(parents=True)
    in_batches(counted(), tmp_path, config(100), stop_after=1)
    assert not left.exists()
