"""The driver dies at each step around a checkpoint; the next process commits each record once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import CollectionSource, FileSink, Job
from spark_bridge.pipeline.batch_driver import BatchDriver
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import StoppedError, config, in_batches, simulated


def two_sinks(parallelism: int = 2) -> Job:
    """One stream into two directories: their commits are two steps."""
    job = Job("twice", parallelism=parallelism)
    numbers = job.source(CollectionSource(range(500), splits=2), name="numbers").rebalance().map(lambda one: one * 3)
    numbers.sink(FileSink("first"), uid="first")
    numbers.sink(FileSink("second"), uid="second")
    return job


def _dies(step: Callable[..., Any], at: int, *, before: bool) -> Callable[..., Any]:
    """``step``, but the process dies in its ``at``-th call, before or after it is done."""
    calls = 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and before:
            raise StoppedError
        result = step(*arguments, **options)
        if calls == at:
            raise StoppedError
        return result

    return dying


def in_the_middle_of_a_batch(driver: BatchDriver, at: int) -> None:
    driver.run = _dies(driver.run, at, before=False)


def before_the_metadata(driver: BatchDriver, at: int) -> None:
    driver.files.complete = _dies(driver.files.complete, at, before=True)  # type: ignore[method-assign]


def after_the_metadata(driver: BatchDriver, at: int) -> None:
    driver.files.complete = _dies(driver.files.complete, at, before=False)  # type: ignore[method-assign]


def between_two_commits(driver: BatchDriver, at: int) -> None:
    driver.commit_operator = _dies(driver.commit_operator, 4 * at - 2, before=False)  # type: ignore[method-assign]


def after_the_commits(driver: BatchDriver, at: int) -> None:
    driver.run_batch = _dies(driver.run_batch, at, before=False)  # type: ignore[method-assign]


STEPS = (
    in_the_middle_of_a_batch, before_the_metadata, after_the_metadata, between_two_commits, after_the_commits,
)  # fmt: skip


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("dies", STEPS, ids=lambda step: step.__name__)
def test_a_death_of_the_driver_loses_nothing_and_repeats_nothing(
    dies: Callable[[BatchDriver, int], None], at: int, tmp_path: Path
) -> None:
    """Whatever step of a batch it dies in, and in whichever batch."""
    with pytest.raises(StoppedError):
        in_batches(two_sinks(), tmp_path / "run", config(100), watch=lambda driver: dies(driver, at))
    early = jobs.committed(tmp_path / "run" / "out")
    result, oracle = in_batches(two_sinks(), tmp_path / "run", config(100))
    assert result.error is None, result.error
    simulated(two_sinks(), tmp_path / "undisturbed", config(100))
    expected = jobs.committed(tmp_path / "undisturbed" / "out")
    assert jobs.committed(tmp_path / "run" / "out") == expected
    assert early <= expected, "a reader has seen a row that was never committed"
    assert oracle.held


def test_what_a_dead_process_did_not_commit_is_committed_before_the_next_batch(tmp_path: Path) -> None:
    """The checkpoint exists, so its rows are due."""
    with pytest.raises(StoppedError):
        in_batches(two_sinks(), tmp_path, config(100), watch=lambda driver: after_the_metadata(driver, 1))
    assert not jobs.committed(tmp_path / "out"), "the metadata is there, and no sink has heard of it"

    def no_batch(driver: BatchDriver) -> None:
        driver.run_batch = _dies(driver.run_batch, 1, before=True)  # type: ignore[method-assign]

    with pytest.raises(StoppedError):
        in_batches(two_sinks(), tmp_path, config(100), watch=no_batch)
    assert sum(jobs.committed(tmp_path / "out").values()) == 2 * 100 * 2
