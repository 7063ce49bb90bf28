"""Whole jobs with windows of columns: crashes, other subtasks and other state backends change no result."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from engine.checkpoint.coordinator import RestoreMode
from engine.explore.check import CheckOrder
from engine.explore.ledger import EffectLedger
from engine.explore.run import Subject
from engine.explore.search import CampaignOrder, explore
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults, aggregates
from operators.columns import ColumnSource, mean_of, record_count, sum_of
from operators.time import WatermarkStrategy
from operators.windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.explore.check.jobs import calm_case, outcomes
from tests.runtime.support import US, checked, every, execution, storage_in

MODES = ("aligned", "unaligned", "aligned-timeout")
WINDOWS = {"tumbling": TumblingEventTimeWindows.of(100), "sliding": SlidingEventTimeWindows.of(100, 40)}
SLOW = CostModel(source_record_ns=1_000, record_ns=1_500)
COUNT = 400


def table(count: int) -> dict[str, Any]:
    """Records of 7 keys, every fifth of them 36 ms late."""
    number = np.arange(count)
    return {"k": number * 31 % 7, "v": number, "at": number * 9 - (number % 5 == 0) * 36}


def windows_job(
    results: CollectedResults, windows: str, parallelism: int = 2, *, count: int = COUNT, in_columns: bool = True
) -> Job:
    job = Job("windows", max_parallelism=8)
    times = WatermarkStrategy.for_bounded_out_of_orderness(40).with_interval_ns(20 * US)
    columns = ColumnSource(table(count), timestamps="at")
    source = job.source(columns, watermarks=times, name="in", uid="in", parallelism=1)
    options: Any = {"name": "windows", "uid": "windows", "parallelism": parallelism}
    named = source.key_by_column("k").window(WINDOWS[windows]).allowed_lateness(20)
    if in_columns:
        several = {"sum": sum_of("v"), "n": record_count(), "mean": mean_of("v")}
        names = ("k", "window_start", "window_end", *several)
        found = named.aggregate_columns(several, **options).to_rows(*names, name="rows")
    else:
        several_of_rows = aggregates.combined(
            sum=aggregates.total(_value), n=aggregates.count(), mean=aggregates.mean(_value)
        )
        found = named.aggregate(several_of_rows, _record, **options)
    found.collect(results, name="out", uid="out", parallelism=1, chain=False)
    return job


def _value(row: Any) -> int:
    return int(row["v"])


def _record(key: int, window: Any, result: dict[str, Any]) -> tuple[Any, ...]:
    return (key, window.start, window.end, result["sum"], result["n"], result["mean"])


@cache
def expected(windows: str, count: int = COUNT) -> list[Any]:
    """The results of windows on rows, in a run without failures."""
    results = CollectedResults()
    execution(windows_job(results, windows, count=count, in_columns=False), mode="none").run().raise_on_failure()
    assert len(results.records) > count // 2
    return sorted(results.records)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog"])
def test_crashes_lose_and_repeat_nothing(mode: str, windows: str, backend: str) -> None:
    """Tasks die while windows are open, and again while late records are in flight: each result is committed once."""
    results, oracle = CollectedResults(), CutOracle()
    run = execution(
        windows_job(results, windows),
        state_backend=backend,
        mode=mode,
        batch_size=16,
        channel_capacity=20,
        output_capacity=40,
        checkpoint_interval=every(ns=40 * US),
        cost=SLOW,
        aligned_timeout_ns=5 * US if mode == "aligned-timeout" else None,
        kills=[("windows[0]", 300 * US), ("in[0]", 10_000 * US + 450 * US)],
        instruments=[oracle],
    )
    result = checked(run).raise_on_failure()

    assert [restore.checkpoint_id is None for restore in result.restores] == [True, False, False]
    assert oracle.held
    assert sorted(results.records) == expected(windows)


@pytest.mark.parametrize("backends", [("heap", "heap"), ("heap", "lsm"), ("lsm", "heap"), ("changelog", "changelog")])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_goes_on_with_other_subtasks_and_another_backend(backends: tuple[str, str], parallelism: int) -> None:
    """From some checkpoints of a run, the windows that were open and all later ones have their results."""
    files, before = MemoryFileSystem(), CollectedResults(transactional=False)
    job = windows_job(before, "sliding")
    common: dict[str, Any] = {"batch_size": 16, "cost": SLOW}
    often: dict[str, Any] = {"checkpoint_interval": every(ns=90 * US), "retained": 1000}
    execution(job, file_system=files, state_backend=backends[0], **often, **common).run().raise_on_failure()
    storage = storage_in(files, job.name)
    for checkpoint in list(storage.list_checkpoints())[:3]:
        after = CollectedResults(transactional=False)
        run = Execution(
            windows_job(after, "sliding", parallelism).plan(),
            RunConfig(state_backend=backends[1], **common),
            storage=CheckpointStorage(files, f"/from-{checkpoint}", job.name),
            file_system=files,
            output_dir="/out",
            restore_from=SavepointRestore(storage.location(checkpoint).directory, RestoreMode.NO_CLAIM),
        )
        checked(run).raise_on_failure()

        found, wanted = sorted(after.records), expected("sliding")
        assert 0 < len(found) < len(wanted)
        # Results are per window: those of windows that end later than the first result are complete.
        first_end = min(end for _, _, end, *_ in found)
        assert [one for one in wanted if one[2] > first_end] == [one for one in found if one[2] > first_end]


def test_under_the_ledger_results_come_one_by_one() -> None:
    """Each with the key and the window whose state has caused it; the results are the same."""
    results = CollectedResults()
    job = windows_job(results, "sliding", count=60)
    Execution(job.plan(), RunConfig(), provenance=EffectLedger()).run().raise_on_failure()
    assert sorted(results.records) == expected("sliding", 60)


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_search_finds_nothing(windows: str) -> None:
    """Crashes, delays and restarts with other subtasks, drawn from seeds."""
    subject = Subject(lambda parallelism: windows_job(CollectedResults(), windows, parallelism or 2, count=40))
    report = explore(lambda: subject, CampaignOrder(runs=40))
    assert not report.failures


def test_an_exhaustive_check_finds_one_output() -> None:
    """A task dies at any moment. Windows, and batches of columns in flight, are copied and compared."""

    def build(_parallelism: int | None) -> Job:
        return windows_job(CollectedResults(), "tumbling", 1, count=3)

    found, search = outcomes(Subject(build, label="windows"), CheckOrder(calm_case(1), victims=("task",)))
    assert search.found.is_complete
    assert {(end, rows) for end, rows, _ in found} == {
        ("finished", (("out", ("(0, -100, 0, 0, 1, 0.0)", "(3, 0, 100, 1, 1, 1.0)", "(6, 0, 100, 2, 1, 2.0)")),))
    }
