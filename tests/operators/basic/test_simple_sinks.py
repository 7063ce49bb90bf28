"""Collecting, printing and counting sinks."""

from __future__ import annotations

from typing import Any

import pytest

from operators.basic import CollectedResults, CollectSink, CountedRecords, CountingSink, PrintSink
from tests.operators.harness import Checkpoint, Harness


def collecting(results: CollectedResults | list[Any], **options: Any) -> Harness:
    return Harness(CollectSink(results).create_operator(), **options)


def test_records_appear_with_the_checkpoint_that_covers_them() -> None:
    """No record is seen before its checkpoint has completed; a later completion covers an aborted one."""
    results: list[str] = []
    harness = collecting(results)
    harness.process("a")
    harness.snapshot(1)
    harness.process("b")
    harness.operator.notify_checkpoint_aborted(1)
    harness.snapshot(2)
    harness.process("c")
    assert results == []

    harness.complete(2)
    assert results == ["a", "b"]
    harness.complete(1)
    harness.close()
    assert results == ["a", "b"]


@pytest.mark.parametrize("notified", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_restore_commits_exactly_once(notified: bool, parallelism: int) -> None:
    """Any subtask commits what the checkpoint covers unless it was committed before, and nothing later."""
    results = CollectedResults()
    checkpoint = Checkpoint(2)
    for subtask, letters in enumerate(("ab", "xy")):
        harness = collecting(results, subtask=subtask, parallelism=2)
        harness.process(letters[0])
        harness.snapshot(1)
        harness.process(letters[1])
        harness.snapshot(2, checkpoint)
        harness.process("lost")
        if notified:
            harness.complete(2)

    for attempt in (2, 3):
        for subtask in range(parallelism):
            collecting(results, subtask=subtask, parallelism=parallelism, restored=checkpoint, attempt=attempt)
        assert sorted(results.records) == ["a", "b", "x", "y"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_going_back_takes_back_what_newer_checkpoints_had_committed(parallelism: int) -> None:
    """Later records are removed, also those of former subtasks; their checkpoint number commits them again."""
    results, older = CollectedResults(["mine"]), Checkpoint(1)
    for subtask, letters in enumerate(("ab", "xy")):
        harness = collecting(results, subtask=subtask, parallelism=2)
        harness.process(letters[0])
        harness.snapshot(1, older)
        harness.complete(1)
        harness.process(letters[1])
        harness.checkpoint(2)
    assert sorted(results.records) == ["a", "b", "mine", "x", "y"]

    subtasks = [
        collecting(results, subtask=subtask, parallelism=parallelism, restored=older, attempt=2)
        for subtask in range(parallelism)
    ]
    assert results.records == ["mine", "a", "x"]
    subtasks[0].process("b")
    subtasks[0].checkpoint(2)
    assert results.records == ["mine", "a", "x", "b"]


def test_a_list_that_somebody_else_has_changed_is_left_alone() -> None:
    """The sink can no longer tell which records belong to which transaction."""
    results, older = CollectedResults(), Checkpoint(1)
    harness = collecting(results)
    harness.snapshot(1, older)
    harness.process("a")
    harness.checkpoint(2)
    results.records.insert(0, "theirs")

    collecting(results, restored=older, attempt=2)

    assert results.records == ["theirs", "a"]


def test_the_rest_goes_with_the_last_checkpoint() -> None:
    """finish publishes no records while a checkpoint is to follow, and all of them when none is."""
    for checkpointing, seen in ((True, []), (False, ["a"])):
        results: list[str] = []
        harness = collecting(results, checkpointing_enabled=checkpointing)
        harness.process("a")
        harness.finish()
        assert results == seen
        if checkpointing:
            harness.checkpoint(1)
            assert results == ["a"]


def test_plain_collection_shows_what_at_least_once_means() -> None:
    """Without transactions records appear as they arrive, and again after a restore."""
    results = CollectedResults(transactional=False)
    first = collecting(results)
    checkpoint = first.snapshot(1)
    first.process("a")
    collecting(results, restored=checkpoint).process("a")

    assert results.records == ["a", "a"]


def test_two_sinks_may_share_a_list() -> None:
    """Transactions are told apart by the operator's uid."""
    results = CollectedResults()
    harnesses = {uid: collecting(results) for uid in ("one", "two")}
    for uid, harness in harnesses.items():
        harness.context.uid = uid
        harness.process([uid])
        harness.checkpoint(1)

    assert results.records == ["one", "two"]


def test_a_job_may_be_run_twice_into_one_list() -> None:
    """A run that starts from nothing is another run, though its checkpoints have the same numbers."""
    results = CollectedResults()
    for _ in range(2):
        harness = collecting(results)
        harness.process("a")
        harness.checkpoint(1)

    assert results.records == ["a", "a"]


def test_printing() -> None:
    """One line per record, with the subtask counted from 1 when there are several."""
    text: list[str] = []
    Harness(PrintSink(text.append).create_operator()).process(["a", 1])
    Harness(PrintSink(text.append).create_operator(), subtask=1, parallelism=3).process([(2,)])

    assert "".join(text) == "'a'\n1\n2> (2,)\n"


def test_printing_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a function to write with, it prints to standard output."""
    Harness(PrintSink().create_operator()).process(["a"])

    assert capsys.readouterr().out == "'a'\n"


def test_counting_goes_back_with_a_restore() -> None:
    """The count is state: records after the checkpoint are forgotten, and a rescale keeps the total."""
    counted = CountedRecords()
    checkpoint = Checkpoint(1)
    for subtask in range(2):
        harness = Harness(CountingSink(counted).create_operator(), subtask=subtask, parallelism=2)
        harness.process("abc")
        harness.snapshot(1, checkpoint)
        harness.process("z")
    assert counted.total == 8

    restored = Harness(CountingSink(counted).create_operator(), restored=checkpoint, attempt=2)
    assert counted.total == 6
    restored.process("d")

    assert counted.total == 7


def test_sinks_send_nothing_on() -> None:
    """Records, watermarks and idleness end in a sink."""
    harness = collecting([])
    harness.process("a")
    harness.watermark(5)
    harness.operator.process_watermark_status(True)

    assert harness.take() == []
