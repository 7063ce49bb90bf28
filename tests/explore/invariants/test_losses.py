"""Losses that the job itself reports: V1 does not ask for those rows, and checks that the report is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from engine.explore.cases import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, NONE
from engine.explore.invariants import invariants_for
from engine.explore.invariants.base import Shared, is_reported
from engine.explore.run import FinishedCase, Subject, World, run_case
from engine.explore.run.file_outputs import FileOutput
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from operators.files.sinks import FileSink
from operators.files.sinks.committing_file_sink import CommittingFileSink
from operators.files.writing import RecoverableWriter, report_lost_files
from operators.log.connectors.log_sink import LogSink
from operators.sources import SequenceSource
from operators.table.partitions.partition_commit import PartitionCommit, PartitionCommitterSpec
from tests.explore.invariants.support import found, healthy, usual

REPORT = "operators.files.sinks.committing_file_sink.report_lost_files"

MISSING = "missing:size */key=1/.*.inprogress.*#1"
"""A disk that, at the commit of a pending file, claims that the file does not exist."""


def _job(parallelism: int | None) -> Job:
    job = Job("numbers", max_parallelism=8)
    numbers = job.source(SequenceSource(0, 40, splits=2), name="numbers", uid="numbers", parallelism=2)
    sink = FileSink("rows", bucket=lambda number: f"key={number % 2}").with_committer()
    numbers.sink(sink, name="out", uid="out")
    return job


@cache
def _subject() -> Subject:
    return Subject(_job, label="numbers")


def carried_out(fault: str | None, promise: str | None = None) -> FinishedCase:
    subject = _subject()
    subject.reference()
    faults = () if fault is None else (parse_fault(fault.replace("key=", "key?")),)
    return run_case(subject, replace(usual(), faults=faults), invariants_for(promise))


def losses(finished: FinishedCase) -> list[str]:
    return [loss for result in finished.results for loss in result.losses]


@pytest.mark.parametrize("promise", [None, "exactly-once", "at-least-once"])
def test_rows_that_the_job_reports_as_lost_may_be_missing(promise: str | None) -> None:
    """The disk has hidden a file, and the job says so: no sink could do more."""
    finished = carried_out(MISSING, promise)
    assert len(losses(finished)) == 1
    assert [fault.kind for fault in finished.faults] == ["missing"]
    rows = sum(map(len, finished.committed.values()))
    assert 0 < rows < 40
    assert finished.violations == []


def test_a_loss_that_is_not_reported_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same fault, and a sink that does not report it."""
    monkeypatch.setattr(REPORT, lambda *arguments: None)
    (text,) = found(carried_out(MISSING), "V1")
    assert text.startswith("output 'out/key=1' is not exactly-once")


def test_only_the_partition_of_the_report_may_lack_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report about another partition does not excuse the loss."""

    def elsewhere(context: object, directory: str, paths: list[str]) -> None:
        report_lost_files(context, directory, [path.replace("key=1", "key=0") for path in paths])  # type: ignore[arg-type]

    monkeypatch.setattr(REPORT, elsewhere)
    (text,) = found(carried_out(MISSING), "V1")
    assert text.startswith("output 'out/key=1' is not exactly-once")


def test_rows_of_a_reported_partition_are_not_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report allows fewer rows, but no additional ones."""
    read = FileSink.read_output

    def twice(sink: FileSink, *where: object) -> Mapping[str, list[str]]:
        return {bucket: rows + rows[:1] for bucket, rows in read(sink, *where).items()}  # type: ignore[arg-type]

    subject = _subject()
    subject.reference()
    monkeypatch.setattr(CommittingFileSink, "read_output", twice)
    texts = found(carried_out(MISSING), "V1")
    assert any(text.startswith("output 'out/key=1' is not at-most-once: ") for text in texts), texts


def test_a_report_must_be_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that finds no file, on a disk that has lost none, is wrong, although all rows are there."""
    commit = RecoverableWriter.commit_after_recovery
    monkeypatch.setattr(
        RecoverableWriter, "commit_after_recovery", lambda writer, pending: bool(commit(writer, pending)) and False
    )
    finished = carried_out(None)
    assert losses(finished)
    assert sum(map(len, finished.committed.values())) == 40
    assert all(
        text.startswith("the job reports a loss, and no fault has damaged a file: ") for text in found(finished, "V1")
    )
    assert len(found(finished, "V1")) == len(losses(finished))


FILE = "sink 'out-committer' was to commit /out/rows/key=1/part-0: it is neither pending nor committed"


@pytest.mark.parametrize(
    ("partition", "loss", "is_about"),
    [
        ("out/key=1", FILE, True),
        ("out/key=11", FILE, False),
        ("out/key=0", FILE, False),
        ("out", FILE, True),
        ("announcer", FILE, True),
        ("log", FILE, False),
        ("log", "transaction ('log/0/1.1/0', 1) of checkpoint 2: it has timed out", True),
        ("log", "transaction ('catalog/0/1.1/0', 1) of checkpoint 2: it has timed out", False),
    ],
)
def test_a_report_says_which_output_it_is_about(partition: str, loss: str, is_about: bool) -> None:
    """By the path of a file, or by the name of a transaction."""
    assert is_reported(_world(), partition, [loss]) is is_about


def _world() -> World:
    world = World()
    world.file_outputs["out"] = FileOutput("/out/rows", FileSink("rows"))
    world.announcers["announcer"] = PartitionCommitterSpec("rows", ["key"], PartitionCommit())
    world.sinks["log"] = LogSink("rows")
    return world


@pytest.mark.parametrize(
    ("partition", "promise", "left"),
    [
        ("out/key=1", EXACTLY_ONCE, AT_MOST_ONCE),
        ("out/key=1", AT_MOST_ONCE, AT_MOST_ONCE),
        ("out/key=1", AT_LEAST_ONCE, NONE),
        ("out/key=1", NONE, NONE),
        ("out/key=0", EXACTLY_ONCE, EXACTLY_ONCE),
        ("announcer", EXACTLY_ONCE, NONE),
    ],
)
def test_what_is_left_of_a_promise(partition: str, promise: str, left: str) -> None:
    """Rows that may be missing may not be there twice. An announcement counts the rows, so it differs."""
    shared = Shared(promise)
    shared.process_started(replace(healthy().view, world=_world()))
    assert shared.promise_for(partition) == promise
    shared._reports.append({FILE: None})
    assert shared.promise_for(partition) == left
