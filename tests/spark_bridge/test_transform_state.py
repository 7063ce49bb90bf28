"""The state of the Spark operator: a restore at any point makes the same batches of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from spark_bridge.cuts import Cut, event_time_cut, rows_cut
from spark_bridge.errors import SparkBridgeError
from spark_bridge.transform import LATE_TAG
from tests.operators.harness import Harness
from tests.spark_bridge.transforms import TENS, Calls, operator_of, without_spark

# A step is a batch of timestamps, or how far the watermark advances. A row is its own number.
steps = st.lists(st.one_of(st.lists(st.integers(-20, 60), max_size=5), st.integers(0, 25)), max_size=12)


def play(harness: Harness, script: Sequence[list[int] | int], first_row: int, watermark_ms: int) -> tuple[int, int]:
    """Feed steps; returns the number of the next row and the watermark."""
    for step in script:
        if isinstance(step, int):
            watermark_ms += step
            harness.watermark(watermark_ms)
        else:
            harness.process(range(first_row, first_row + len(step)), step)
            first_row += len(step)
    return first_row, watermark_ms


def run_in_parts(cut: Cut, parts: Sequence[Sequence[list[int] | int]]) -> tuple[list[tuple[str, list[Any]]], list[Any]]:
    """The batches and the output of a script that is snapshotted and restored between its parts."""
    with without_spark() as calls:
        row, watermark_ms, output, checkpoint = 0, -20, [], None
        for number, part in enumerate(parts):
            harness = operator_of(cut, restored=checkpoint)
            row, watermark_ms = play(harness, part, row, watermark_ms)
            checkpoint = harness.snapshot(number)
            output += harness.take()
        harness.watermark(MAX_TIMESTAMP_MS)
        harness.finish()
        return calls.batches, output + harness.take()


def batches_by_hand(script: Sequence[list[int] | int]) -> tuple[list[tuple[str, list[int]]], list[int]]:
    """The meaning of an event-time cut: the batches in order, and the late rows. Closes periods one millisecond at a
    time."""
    row, watermark_ms = 0, -20
    batches: list[tuple[str, list[int]]] = []
    late: list[int] = []
    waiting: dict[int, list[int]] = {}
    for step in [*script, 200]:
        if isinstance(step, int):
            for now_ms in range(watermark_ms + 1, watermark_ms + step + 1):
                if now_ms % 10 == 9 and now_ms - 9 in waiting:
                    batches.append((f"op: from {now_ms - 9}", waiting.pop(now_ms - 9)))
            watermark_ms += step
        else:
            for timestamp_ms in step:
                period_ms = timestamp_ms - timestamp_ms % 10
                (late if period_ms + 9 <= watermark_ms else waiting.setdefault(period_ms, [])).append(row)
                row += 1
    return batches, late


@given(steps)
def test_batches_are_those_of_the_definition(script: list[list[int] | int]) -> None:
    """Each row is in exactly one batch, that of its period, or late: as a model says that knows no batches."""
    batches, output = run_in_parts(TENS, [[0, *script]])

    sent_aside = [
        value for event in output if isinstance(event, tuple) and event[0] == LATE_TAG for value in event[1].values
    ]
    assert (batches, sent_aside) == batches_by_hand(script)


@pytest.mark.parametrize("cut", [TENS, rows_cut(4)], ids=["event time", "rows"])
@given(script=steps, data=st.data())
def test_a_restore_anywhere_changes_no_batch(cut: Cut, script: list[list[int] | int], data: st.DataObject) -> None:
    """Snapshots and restores at any points leave batches, labels, results and late rows as they were."""
    points = sorted(data.draw(st.lists(st.integers(0, len(script)), max_size=3)))
    parts = [script[start:end] for start, end in pairwise([0, *points, len(script)])]

    assert run_in_parts(cut, parts) == run_in_parts(cut, [script])


def test_rows_wait_in_state(calls: Calls) -> None:
    """Every kind of row comes back unchanged, with the name of its period."""
    rows: list[Any] = [{"carrier": "UA", "delay": None}, ["UA", 1.5], ("UA", 2), "text", 7]
    harness = operator_of(TENS, lambda rows: [])
    harness.process(rows, [5] * len(rows))
    checkpoint = harness.snapshot(1)
    harness.process([8], [5])

    restored = operator_of(TENS, lambda rows: [], restored=checkpoint)
    restored.watermark(9)

    assert calls.batches == [("op: from 0", rows)]


def test_no_batch_runs_at_a_barrier(calls: Calls) -> None:
    """A checkpoint does not end a batch, unless the cut says so."""
    for cut in (TENS, rows_cut(4)):
        harness = operator_of(cut)
        harness.process([1, 2], [0, 0])
        harness.snapshot(1)

    assert calls.batches == []


def test_fingerprints_tell_states_apart(calls: Calls) -> None:
    """Equal histories have equal fingerprints; one more row, watermark or batch gives another."""

    def after(*script: list[int] | int, cut: Cut = TENS) -> object:
        harness = operator_of(cut)
        play(harness, script, 0, -20)
        return harness.operator.fingerprint()

    assert after([5]) == after([5])
    different = [after(), after([5]), after([5, 5]), after([15]), after([5], 1), after([5], 30)]
    assert len(set(different)) == len(different)
    assert after([5] * 4, cut=rows_cut(4)) != after(cut=rows_cut(4))


@pytest.mark.parametrize("cut", [TENS, rows_cut(4)], ids=["event time", "rows"])
@given(script=steps)
def test_a_restored_operator_is_the_one_it_was(cut: Cut, script: list[list[int] | int]) -> None:
    """Whatever came before, the fingerprint before a snapshot is that after the restore from it."""
    with without_spark():
        harness = operator_of(cut)
        play(harness, script, 0, -20)
        restored = operator_of(cut, restored=harness.snapshot(1))

    assert restored.operator.fingerprint() == harness.operator.fingerprint()


def test_what_was_late_stays_late_after_a_restore(calls: Calls) -> None:
    """The watermark is state: a row of a period that ran before the cut makes no second batch of that period."""
    harness = operator_of(TENS)
    harness.process([1], [5])
    harness.watermark(9)

    restored = operator_of(TENS, restored=harness.snapshot(1))
    restored.process([2], [5])
    restored.watermark(3)

    assert restored.take() == [(LATE_TAG, Batch([2], [5])), ("watermark", 9)]
    restored.finish()
    assert calls.rows == [[1]]


def test_the_numbers_of_batches_survive_a_restore(calls: Calls) -> None:
    """Batches are numbered through, so a message names the same rows in every attempt."""
    harness = operator_of(rows_cut(2))
    harness.process([1, 2, 4, 8, 16])

    restored = operator_of(rows_cut(2), restored=harness.snapshot(1))
    restored.process([32])

    assert calls.labels == ["rows 1-2", "rows 3-4", "rows 5-6"]
    assert calls.rows[-1] == [16, 32]


@pytest.mark.parametrize(
    ("before", "after"),
    [(event_time_cut("month"), event_time_cut("day")), (rows_cut(9), event_time_cut("day")), (TENS, rows_cut(9))],
    ids=["month to day", "rows to day", "event time to rows"],
)
def test_a_changed_cut_does_not_tear_batches_apart(calls: Calls, before: Cut, after: Cut) -> None:
    """Rows that wait under one cut and rows that come under another never share a batch."""
    harness = operator_of(before)
    harness.process([1], [5])

    restored = operator_of(after, restored=harness.snapshot(1))

    with pytest.raises(SparkBridgeError, match=r"overlaps.*after a change of the cut, give the operator another uid"):
        restored.process([2], [7])
