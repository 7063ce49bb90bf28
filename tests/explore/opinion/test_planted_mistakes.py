"""Mistakes of the engine that show in every run, or as dependence on order, are convicted: the reference is not the
engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine import CollectedResults, CollectionSource, Job, TumblingEventTimeWindows, WatermarkStrategy, aggregates
from engine.explore.run import Subject
from engine.explore.search import CampaignOrder, CampaignReport, explore
from operators.basic import ReduceOperator
from operators.windows import EventTimeSessionWindows, WindowOperator
from operators.windows.merging import MergingWindows
from tests.explore.opinion.support import subject_of
from tests.explore.subjects import counting_subject

ORDER = CampaignOrder(seed="planted", runs=2)
IN_TIME = WatermarkStrategy.for_bounded_out_of_orderness(5_000, lambda reading: reading[1])
READINGS = [("a", 100), ("b", 400), ("a", 1_000), ("a", 2_300), ("a", 1_600), ("b", 1_200), ("a", 3_100)]


def windows_subject(assigner: Any) -> Subject:
    """A count per key and window."""

    def build(job: Job) -> None:
        readings = job.source(CollectionSource(READINGS), watermarks=IN_TIME, name="readings", uid="readings")
        counted = readings.key_by(lambda reading: reading[0]).window(assigner).aggregate(aggregates.count())
        counted.collect(CollectedResults(), name="out", uid="out")

    return subject_of(build)


def convicted(report: CampaignReport) -> None:
    """By V1, in a run without a fault, which does the same when it is replayed."""
    assert report.verdict[0] == "violated"
    failure = report.failures[0]
    assert failure.violation.invariant == "V1"
    assert failure.seed.startswith("without-faults/")
    assert not failure.case.faults
    assert failure.replayed == 3
    assert report.reference is not None
    assert report.reference.judged_by == "second opinion"


def test_a_window_that_forgets_its_last_record_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs without faults agree with each other, and all are wrong."""
    add = WindowOperator._add_in_time

    def forgetful(self: WindowOperator, keys: Any, starts: Any, values: Any) -> None:
        kept = len(keys) - 1 if keys[-1] == "b" and starts[-1] == 1_000 else len(keys)
        if kept:
            add(self, keys[:kept], starts[:kept], values[:kept])

    monkeypatch.setattr(WindowOperator, "_add_in_time", forgetful)
    convicted(explore(lambda: windows_subject(TumblingEventTimeWindows.of(1_000)), ORDER))


def test_a_session_that_loses_what_it_was_merged_from_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contents of the further sessions are not moved."""
    plan = MergingWindows.plan
    monkeypatch.setattr(MergingWindows, "plan", lambda self, window: replace(plan(self, window), moved=()))
    convicted(explore(lambda: windows_subject(EventTimeSessionWindows.with_gap(800)), ORDER))


def test_a_mistake_that_shows_as_dependence_on_order_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction loses a record of each larger batch: every run differs, and the job is not to blame."""
    process = ReduceOperator.process_batch

    def losing(self: ReduceOperator, batch: Any) -> None:
        process(self, batch.take(range(len(batch) - 1)) if len(batch) > 2 else batch)

    monkeypatch.setattr(ReduceOperator, "process_batch", losing)
    convicted(explore(counting_subject, ORDER))


def test_a_healthy_engine_is_not() -> None:
    """The same jobs, as the engine is."""
    for assigner in (TumblingEventTimeWindows.of(1_000), EventTimeSessionWindows.with_gap(800)):
        report = explore(lambda assigner=assigner: windows_subject(assigner), replace(ORDER, runs=4))  # type: ignore[misc]
        assert not report.failures
        assert report.reference is not None
        assert report.reference.judged_by == "second opinion"
