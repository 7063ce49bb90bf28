"""Campaigns: the same report from any number of processes, coverage that adds up, verdicts with three values."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.cli.cases import load_subject
from engine.elements.errors import ConfigurationError, WorkerError
from engine.explore.run import Bounds, FinishedCase, Subject, run_case
from engine.explore.search import (
    CHUNK_RUNS,
    CampaignOrder,
    CampaignReport,
    Coverage,
    Swarm,
    campaign,
    explore,
    garbage_kept,
)
from engine.explore.search.coverage import CountSpread
from engine.explore.search.workers import Pool
from tests.explore.subjects import counting_subject, failing_subject, order_dependent_subject
from tests.mutants.mistakes.alignment import alignment_skipped

ORDER = CampaignOrder(runs=CHUNK_RUNS * 2, swarm=Swarm(kinds=("crash", "lose", "rescale")))
"""Few runs: what is only sometimes the case may stay out."""

JOB = Path(__file__).parents[1] / "subjects.py"
SKEWED = {"batch_size": 1, "checkpoint_interval": "6us", "cost.slow_links.first": 9_000, "tolerable_failures": 3}
TWICE = CampaignOrder(
    runs=16, promise="exactly-once", swarm=Swarm(modes=("at-least-once",), kinds=("crash",), fixed=SKEWED)
)
"""At-least-once counts records twice, and is held to exactly-once: some runs of these fail."""


@pytest.fixture(scope="module")
def report() -> CampaignReport:
    """One campaign that several tests look at."""
    return explore(counting_subject, ORDER)


def standard() -> Subject:
    """The standard scenario, from its file, as workers load it."""
    return load_subject(str(JOB.parents[2] / "examples/standard_scenario.py"), {"sink": "collect", "records": "24"})


def what_was_seen(report: CampaignReport) -> object:
    """Everything about a report but the time it took."""
    failures = [(one.seed, one.digest, one.replayed, list(map(str, one.violations))) for one in report.failures]
    coverage = report.coverage
    return (coverage.as_plain(), sorted(coverage.behaviours), failures, report.verdict)


def test_a_campaign_adds_up(report: CampaignReport) -> None:
    """Every run is counted once; five per cent of them are made twice; nothing is violated."""
    assert repr(report) == f"<CampaignReport {report.verdict[0]}: {ORDER.runs} runs, 0 failures>"
    coverage = report.coverage
    assert report.failures == []
    assert (coverage.runs, coverage.checked) == (CHUNK_RUNS * 2, 2)
    assert sum(coverage.outcomes.values()) == sum(coverage.modes.values()) == coverage.events.runs == coverage.runs
    assert coverage.choices.least <= coverage.choices.mean <= coverage.choices.greatest
    assert len(coverage.behaviours) > coverage.runs // 2
    assert sum(coverage.faults.values()) > 5
    struck, reachable = coverage.crash_points
    assert 0 < struck < reachable


def test_a_campaign_is_the_same_each_time(report: CampaignReport) -> None:
    """Same seed, same report; another seed, other runs."""
    assert what_was_seen(report) == what_was_seen(explore(counting_subject, ORDER))
    other = explore(counting_subject, replace(ORDER, seed="other", runs=CHUNK_RUNS))
    assert not other.coverage.behaviours & report.coverage.behaviours


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(ORDER, id="valid", marks=pytest.mark.slow),
        pytest.param(TWICE, id="first"),
        pytest.param(replace(TWICE, keep_going=True), id="all", marks=pytest.mark.slow),
    ],
)
def test_workers_change_nothing(order: CampaignOrder) -> None:
    """With two processes the report is that of one, down to which failure is the first."""
    alone = what_was_seen(explore(standard, order))
    assert what_was_seen(explore(standard, replace(order, jobs=2))) == alone


def test_the_first_failure_ends_it_and_is_replayed() -> None:
    """Of all failures the one with the lowest number is reported; each replay did the same."""
    first = explore(standard, TWICE)
    everything = explore(standard, replace(TWICE, keep_going=True))
    assert first.verdict[0] == everything.verdict[0] == "violated"
    assert first.verdict[2] == 1
    assert len(first.failures) == 1
    assert len(everything.failures) > 1
    assert first.failures[0] == everything.failures[0]
    assert first.failures[0].replayed == 3
    assert first.failures[0].violation.invariant == "V1"
    assert first.coverage.runs == first.failures[0].number + 1
    assert everything.coverage.runs == TWICE.runs


def test_a_broken_engine_is_found() -> None:
    """Barriers that do not wait for each other: exactly-once is gone, and some run says so."""
    order = replace(TWICE, promise=None, swarm=Swarm(modes=("aligned",), kinds=("crash",), fixed=SKEWED))
    with alignment_skipped():
        broken = explore(standard, replace(order, bounds=Bounds(events=5_000)))
    assert broken.verdict[0] == "violated"
    assert explore(standard, replace(order, runs=5)).failures == []


class Unsteady:
    """Makes runs of which every second one is another one."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, *arguments: object, **settings: object) -> FinishedCase:
        """Run a case, every second time with another seed."""
        self.made += 1
        subject, case, *others = arguments
        if self.made % 2 == 0:
            case = replace(case, seed=f"{case.seed}-other")  # type: ignore[type-var,attr-defined]
        return run_case(subject, case, *others, **settings)  # type: ignore[arg-type]


def test_a_run_that_is_not_the_same_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check of every twentieth run notices, and calls it by its name."""
    monkeypatch.setattr(campaign, "run_case", Unsteady())
    report = explore(counting_subject, ORDER)
    assert report.verdict[0] == "violated"
    assert report.failures[0].number == 0
    assert report.failures[0].violation.invariant == "V16"


def test_what_never_happened_makes_a_campaign_vacuous() -> None:
    """A search that never restored anything proves nothing about restoring: unknown, and it says what is missing."""
    report = explore(counting_subject, replace(ORDER, runs=1))
    name, reason, exit_code = report.verdict
    assert (name, exit_code) == ("unknown", 2)
    assert "but none" in reason
    assert report.coverage.vacuous


def test_a_job_that_depends_on_the_order_is_judged_by_the_ledger() -> None:
    """No rows can be compared, and the verdict says what was."""
    report = explore(order_dependent_subject, replace(ORDER, runs=60))
    name, reason, _ = report.verdict
    assert name == "valid"
    assert "depends on the order" in reason
    judged = report.coverage.by_ledger
    # Jobs that go on from a savepoint leave it nothing to go by.
    assert 0 < judged < 60
    assert f"the ledger judged {judged} of the runs: in these nothing is lost or applied twice" in reason
    assert report.reference is not None
    assert report.reference.judged_by == "ledger"
    assert explore(order_dependent_subject, replace(ORDER, runs=2, promise="none")).reference is None


def test_a_job_that_neither_rows_nor_effects_can_judge_is_unknown() -> None:
    """The verdict goes by the report: here one of runs of which the ledger has judged none, as in mode acking."""
    report = explore(order_dependent_subject, replace(ORDER, runs=2))
    report = replace(report, coverage=replace(report.coverage, by_ledger=0))
    assert report.verdict[0] == "unknown"
    assert "the ledger could judge none of the runs" in report.verdict[1]


def test_a_job_that_fails_by_itself_is_not_searched() -> None:
    """It is told so before the first run."""
    with pytest.raises(ConfigurationError, match="even when nothing goes wrong"):
        explore(failing_subject, ORDER)


def test_time_ends_a_campaign() -> None:
    """Without a number of runs the clock ends it, here one on which each chunk takes a second; progress is told."""
    told: list[tuple[int, float]] = []
    order = replace(ORDER, runs=None, seconds=1.5)
    report = explore(
        counting_subject, order, lambda coverage, seconds: told.append((coverage.runs, seconds)),
        clock=lambda: float(len(told)),
    )
    assert told == [(CHUNK_RUNS, 0.0), (CHUNK_RUNS * 2, 1.0)]
    assert (report.coverage.runs, report.seconds) == (CHUNK_RUNS * 2, 2.0)


def test_real_files_give_the_same_runs(tmp_path: Path) -> None:
    """On a real disk each run has the trace that it has in memory, and deletes its files."""
    order = replace(ORDER, runs=6, swarm=Swarm(kinds=("crash",)))
    real = explore(counting_subject, replace(order, files=str(tmp_path)))
    assert real.coverage.behaviours == explore(counting_subject, order).coverage.behaviours
    assert real.failures == []
    assert list(tmp_path.iterdir()) == []


def test_coverage_can_be_merged_in_any_order(report: CampaignReport) -> None:
    """Parts that are merged one way or the other are the whole."""
    explorer = campaign.Explorer(counting_subject(), ORDER)
    parts = [explorer.chunk(first, 20).coverage for first in range(0, CHUNK_RUNS * 2, 20)]
    assert len(parts) > 1
    for order in (parts, parts[::-1]):
        merged = Coverage()
        for part in order:
            merged.merge(part)
        assert merged.as_plain() == report.coverage.as_plain()


def test_a_spread_of_nothing() -> None:
    """Merging nothing changes nothing; the first value is least and greatest."""
    spread = CountSpread()
    spread.merge(CountSpread())
    spread.add(7)
    spread.merge(CountSpread())
    assert (spread.least, spread.mean, spread.greatest) == (7, 7, 7)


# -- workers ----------------------------------------------------------------------------------------------------------


def _maker(broken_at: int) -> object:
    def make(first: int, count: int) -> tuple[int, int]:
        if first == broken_at:
            raise ValueError("broken on purpose")
        return first, count

    return make


def test_chunks_come_in_the_order_of_their_numbers() -> None:
    """Whichever process is faster."""
    spans = [(number * 3, 3) for number in range(11)]
    with Pool(3, partial(_maker, -1)) as pool:  # type: ignore[arg-type]
        assert list(pool.in_order(iter(spans))) == spans


def test_what_fails_in_a_worker_is_told() -> None:
    """With its traceback, and not by waiting for ever."""
    spans = ((number * 3, 3) for number in range(9))
    with (
        Pool(2, partial(_maker, 6)) as pool,  # type: ignore[arg-type]
        pytest.raises(WorkerError, match="broken on purpose"),
    ):
        list(pool.in_order(spans))


def test_garbage_of_a_run_is_gone_once_it_is_collected() -> None:
    """Between two runs the garbage of the first is collected, and until then the collector rests."""

    class Node:
        itself: Node

    with garbage_kept() as collect:
        assert not gc.isenabled()
        node = Node()
        node.itself = node
        seen = weakref.ref(node)
        del node
        assert seen() is not None
        collect()
        assert seen() is None
    assert gc.isenabled()
