"""A checkpoint of the simulator goes on in batches, and the other way, with other subtasks and another backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Job
from engine.checkpoint.restore import NoRestart
from engine.runtime.config import CostModel
from engine.runtime.storage import open_storage
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated

BuildJob = Callable[[int], Job]
KEYED = pytest.mark.parametrize(
    "build", [jobs.word_count, jobs.windows, jobs.columns], ids=lambda build: build.__name__
)


def expected(build: BuildJob, tmp_path: Path) -> object:
    simulated(build(2), tmp_path / "undisturbed", config())
    return jobs.committed(tmp_path / "undisturbed" / "out")


@KEYED
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_goes_on_in_batches_where_the_simulator_has_stopped(
    build: BuildJob, parallelism: int, tmp_path: Path
) -> None:
    """With fewer and with more subtasks."""
    result = simulated(build(2), tmp_path / "run", config(restart=NoRestart()), killed_at_ns=420_000)
    assert result.error is not None
    assert result.checkpoints.completed >= 1
    result, oracle = in_batches(build(parallelism), tmp_path / "run", config())
    assert result.error is None, result.error
    assert result.restores[0].checkpoint_id is not None
    assert jobs.committed(tmp_path / "run" / "out") == expected(build, tmp_path)
    assert oracle.held


@KEYED
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_goes_on_in_the_simulator_where_the_batches_have_stopped(
    build: BuildJob, parallelism: int, tmp_path: Path
) -> None:
    """With fewer and with more subtasks."""
    in_batches(build(2), tmp_path / "run", config(), stop_after=2)
    result = simulated(build(parallelism), tmp_path / "run", config())
    assert result.error is None, result.error
    assert result.restores[0].checkpoint_id == 2
    assert jobs.committed(tmp_path / "run" / "out") == expected(build, tmp_path)


@pytest.mark.parametrize("first", ["heap", "lsm", "changelog"])
def test_worlds_alternate_over_one_storage(first: str, tmp_path: Path) -> None:
    """Batches, simulator, batches: with a full checkpoint another backend may take over."""
    in_batches(jobs.word_count(2), tmp_path / "run", config(100, state_backend=first), stop_after=2)
    settings = config(100, state_backend=first, restart=NoRestart())
    assert simulated(jobs.word_count(3), tmp_path / "run", settings, killed_at_ns=120_000).error is not None
    result, _ = in_batches(jobs.word_count(1), tmp_path / "run", config(100, state_backend=first))
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "run" / "out") == expected(jobs.word_count, tmp_path)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_records_in_flight_are_replayed_before_all_others(parallelism: int, tmp_path: Path) -> None:
    """An unaligned checkpoint of the simulator holds some; other subtasks may get them."""
    options = {"cost": CostModel(record_ns=3_000), "batch_size": 20, "checkpoint_timeout_ns": 10**12}
    settings = config(100, mode="unaligned", restart=NoRestart(), **options)
    result = simulated(jobs.word_count(2), tmp_path / "run", settings, killed_at_ns=700_000)
    assert result.error is not None
    with open_storage(str(tmp_path / "run" / "state"), "words") as opened:
        newest = opened.storage.read_metadata(opened.storage.list_checkpoints()[-1])
        assert list(newest.channel_state()), "no record was in flight"
    result, oracle = in_batches(jobs.word_count(parallelism), tmp_path / "run", config())
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "run" / "out") == expected(jobs.word_count, tmp_path)
    assert oracle.held
