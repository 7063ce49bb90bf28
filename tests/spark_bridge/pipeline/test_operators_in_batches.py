"""Every kind of operator and source gives in batches what it gives in the simulator, and so do the example jobs."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine import FileSink, Job
from examples import (
    backpressure,
    database_sinks,
    ledger,
    page_views,
    partition_commit,
    sinks,
    standard_scenario,
    visits,
    wordcount,
)
from tests.spark_bridge.pipeline import jobs, operator_jobs
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated


@pytest.mark.parametrize("name", operator_jobs.ALL)
def test_an_operator_in_batches(name: str, tmp_path: Path) -> None:
    """Its state, timers and event time go from batch to batch; rows cross in any order."""
    build, given = operator_jobs.ALL[name], tmp_path / "given"
    assert simulated(build(given), tmp_path / "simulated", config(40)).error is None
    result, oracle = in_batches(build(given), tmp_path / "batches", config(40), seed=4)
    assert result.error is None, result.error
    assert oracle.held
    assert len(oracle.verdicts) >= 4
    expected = jobs.committed(tmp_path / "simulated" / "out")
    assert jobs.committed(tmp_path / "batches" / "out") == expected
    assert sum(expected.values()) >= 4


# -- examples ---------------------------------------------------------------------------------------------------------


def _with_files(module: ModuleType) -> Callable[[pytest.MonkeyPatch, Path], Job]:
    """A job for searches, which writes to a log in memory: with files in its place."""

    def made(patch: pytest.MonkeyPatch, _directory: Path) -> Job:
        patch.setattr(module, "LogSink", lambda topic, **_: FileSink(f"log-{topic}"))
        job: Job = module.job()
        return job

    return made


def _searched(names: str) -> dict[str, Callable[[pytest.MonkeyPatch, Path], Job]]:
    return {name: _with_files(importlib.import_module(f"examples.{name}")) for name in names.split()}


EXAMPLES: dict[str, Callable[[pytest.MonkeyPatch, Path], Job]] = {
    "wordcount": lambda *_: wordcount.job("20"),
    "standard_scenario": lambda *_: standard_scenario.job("collect"),
    "backpressure": lambda *_: backpressure.job(records="100"),
    "ledger": lambda *_: ledger.job("100"),
    "page_views": lambda *_: page_views.job("60"),
    "partition_commit": lambda *_: partition_commit.job(),
    "database_sinks": lambda _, directory: database_sinks.job("60", str(directory / "shop.sqlite")),
    **{f"sinks {name}": lambda *_, name=name: sinks.job(name) for name in ("committing-open", "bucketing-lengths")},
    **_searched(
        "scenarios.changelog_load scenarios.four_inputs scenarios.idle_watermarks"
        " scenarios.merging_sessions scenarios.shared_files teaching.counting teaching.finishing teaching.in_flight"
        " teaching.rescaling teaching.timers teaching.two_phase_commit teaching.windows"
    ),
}


def _rows(job: Job, out: Path) -> Counter[Any]:
    """The rows in files, in collections and in tables."""
    found: Counter[Any] = Counter(jobs.committed(out) if out.exists() else ())
    for _, operator in job.plan().operators():
        sink = getattr(operator.factory, "__self__", None)
        if sink is not None and hasattr(sink, "committed_rows"):
            found.update((operator.uid, row) for row in sink.committed_rows())
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_in_batches(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same committed rows."""
    found = []
    for world in ("simulated", "batches"):
        directory = tmp_path / world
        directory.mkdir()
        job = EXAMPLES[name](monkeypatch, directory)
        if world == "simulated":
            result = simulated(job, directory, config(8))
        else:
            result, oracle = in_batches(job, directory, config(8), seed=6)
            assert oracle.held
        assert result.error is None, result.error
        found.append(_rows(job, directory / "out"))
    assert found[1] == found[0]
    assert found[0]


def test_the_example_with_a_mistake_shows_it_in_batches(tmp_path: Path) -> None:
    """It keeps its counts where no checkpoint finds them, and each batch begins from a checkpoint."""
    job = visits.job()
    result, _ = in_batches(job, tmp_path, config(2))
    assert result.error is None
    assert max(int(row.split(", ")[1][0]) for _, row in _rows(job, tmp_path / "out")) < 3
