"""Mistakes in resuming a job: they are refused, or repaired, and never ignored silently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.checkpoint.restore import NoRestart
from engine.explore.cases import Case
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults import operator_error
from engine.faults.fault import parse_fault
from engine.faults.injector import FaultInjector
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from operators.basic import CollectedResults
from operators.files.sinks import FileSink, read_committed
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.faults.disturbed import EXACTLY_ONCE
from tests.faults.test_storage_faults import ROWS, SUBJECT, case, rows

CRASH = "crash:process@before:sink.commit#5"
"""The third checkpoint is durable, and nothing of it committed; the second one is retained."""


def mistaken(mistake: str, mode: str = "aligned") -> FinishedCase:
    """The counting job, whose process dies and is resumed with a mistake."""
    return run_case(SUBJECT, case(CRASH, f"{mistake}:*#1", mode=mode))


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
@pytest.mark.parametrize("mistake", ["wrong-directory", "change-uids"])
def test_a_mistake_is_refused_and_the_proper_resume_goes_on(mistake: str, mode: str) -> None:
    """The attempt leaves all files as they were: each row is committed once."""
    finished = mistaken(mistake, mode)

    assert not finished.violations, finished.violations
    assert [fault.kind for fault in finished.faults] == ["crash", mistake]
    assert rows(finished) == ROWS


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_going_back_to_an_older_checkpoint_is_repaired(mode: str) -> None:
    """Rows that a deleted checkpoint had committed are committed anew under its id, once (apache/iceberg#10892)."""
    finished = run_case(SUBJECT, case("crash:process@after:sink.commit#6", "restore-older:*#1", mode=mode))

    assert not finished.violations, finished.violations
    assert [fault.kind for fault in finished.faults] == ["crash", "restore-older"]
    (restored,) = [restore.checkpoint_id for restore in finished.result.restores]
    assert restored == 2
    assert rows(finished) == ROWS


def test_an_older_checkpoint_needs_to_be_there() -> None:
    """With one retained checkpoint there is none to go back to, and the mistake cannot be made."""
    one = case(CRASH, "restore-older:*#1")
    finished = run_case(SUBJECT, replace(one, config={**one.config, "retained": 1}))

    assert finished.unused == (parse_fault("restore-older:*#1"),)
    assert rows(finished) == ROWS


def test_a_mistake_that_is_not_refused_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong resume that is accepted (here: under the right uids) ends the case."""
    monkeypatch.setattr(operator_error, "_renamed", lambda plan: plan)

    finished = mistaken("change-uids")

    assert "was not refused" in str(finished.violations[0])


def test_a_first_start_is_no_resume() -> None:
    """Mistakes count from the first resume on."""
    injector = FaultInjector([parse_fault("wrong-directory:*#1")])
    plan = SUBJECT.plan()

    for _ in range(2):
        injector.errors.before_process(plan, MemoryFileSystem(), "/checkpoints")

    assert injector.unused
    assert not injector.struck


def test_each_resume_is_one_opportunity() -> None:
    """A job that is resumed once has no second opportunity."""
    finished = run_case(SUBJECT, case(CRASH, "wrong-directory:*#2"))

    assert finished.unused == (parse_fault("wrong-directory:*#2"),)


def test_a_file_sink_takes_back_what_the_older_checkpoint_does_not_cover() -> None:
    """The same mistake over files: rows that newer checkpoints had committed are hidden, and come again."""
    files, expected = MemoryFileSystem(), sorted(str(number) for number in range(40))

    def run(number: int, *, stops: bool) -> None:
        job = Job("rows")
        job.source(SequenceSource(0, 40), name="numbers").sink(FileSink("rows"), name="out")
        execution = Execution(
            job.plan(),
            RunConfig(
                batch_size=4, checkpoint_interval=CheckpointInterval(records=10), retained=9, restart=NoRestart()
            ),
            storage=CheckpointStorage(files, "/checkpoints", "rows"),
            file_system=files,
            output_dir="/out",
            incarnation=number,
            restore=not stops,
        )
        if stops:
            execution.kill("numbers", 35_000)
        execution.run()

    run(1, stops=True)
    storage = CheckpointStorage(files, "/checkpoints", "rows")
    completed = storage.list_checkpoints()
    committed = sum(map(len, read_committed(files, "/out/rows").values()))
    operator_error._go_back(storage, files, completed, 1)
    run(2, stops=False)

    assert len(completed) >= 2
    assert committed
    assert read_committed(files, "/out/rows") == {"": expected}


def test_changed_parallelism_is_survived() -> None:
    """Resumed with another one: state is redistributed, and each row committed once."""
    subject = Subject(lambda parallelism: _scaled(parallelism or 1), label="scaled")
    one = Case("1", {"batch_size": 4, "checkpoint_interval": "9us", "parallelism": 2, "retained": 3})
    usual = run_case(subject, one)

    finished = run_case(subject, replace(one, faults=(parse_fault("rescale:process@before:sink.commit#3=3"),)))

    assert finished.incarnations == 2
    assert not finished.violations
    assert rows(finished) == rows(usual)


def _scaled(parallelism: int) -> Job:
    job = Job("scaled", max_parallelism=8)
    pairs = job.source(SequenceSource(0, 40), name="numbers").key_by(
        lambda number: number % 5, value=lambda number: (number % 5, 1)
    )
    counted = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=parallelism)
    counted.collect(CollectedResults(), name="out", chain=False)
    return job
