"""Watermark generators, their combination, idleness, the emission grid, and the operator that assigns them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch
from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.time import TimestampsAndWatermarksOperator, WatermarkStrategy
from operators.time.periodic_watermarks import PeriodicWatermarks
from operators.time.watermark_generators import BoundedOutOfOrdernessGenerator, IdlenessTimer, NoWatermarksGenerator
from tests.operators.harness import START_NS, Harness

MS = 1_000_000


def test_bounded_out_of_orderness() -> None:
    """Watermark = greatest timestamp - bound - 1, the beginning of time before any record, and never falling."""
    generator = BoundedOutOfOrdernessGenerator(5)
    assert generator.watermark_ms() == MIN_TIMESTAMP_MS

    generator.on_batch([100, 90])
    assert generator.watermark_ms() == 94
    generator.on_batch([50])
    assert generator.watermark_ms() == 94


@given(st.lists(st.lists(st.integers(-1000, 1000), min_size=1)), st.integers(0, 100))
def test_no_watermark_overtakes_the_bound(batches: list[list[int]], bound_ms: int) -> None:
    """A record within the bound is never at or below the watermark that was possible before it."""
    generator = BoundedOutOfOrdernessGenerator(bound_ms)
    newest = None
    for batch in batches:
        for stamp in batch:
            if newest is not None and stamp >= newest - bound_ms:
                assert stamp > generator.watermark_ms()
            generator.on_batch([stamp])
            newest = stamp if newest is None else max(newest, stamp)


def test_generator_snapshot_continues_and_respects_a_larger_bound() -> None:
    """A restored generator stands where the other one stood, also under a changed strategy."""
    generator = BoundedOutOfOrdernessGenerator(5)
    generator.on_batch([100])
    other = BoundedOutOfOrdernessGenerator(50)

    other.restore(generator.snapshot())
    assert other.watermark_ms() == 49
    other.restore(BoundedOutOfOrdernessGenerator(0).snapshot())
    assert other.watermark_ms() == MIN_TIMESTAMP_MS


def test_the_watermark_is_the_minimum_of_active_splits() -> None:
    """A split without a watermark holds it back, an idle or ended one does not, and the result never falls."""
    periodic = PeriodicWatermarks(lambda: BoundedOutOfOrdernessGenerator(0), MS, idle_timeout_ms=1, origin_ns=0)
    for name in "abc":
        periodic.add_split(name, 0)

    def at(now_ms: int, **stamps: int) -> tuple[int | None, bool]:
        for name, stamp in stamps.items():
            periodic.on_records(name, [stamp], now_ms * MS - 1)
        return periodic.on_periodic(now_ms * MS)

    assert [at(1, a=11, b=21), at(2, a=11, b=21), at(3, a=11, b=21)] == [(None, False), (None, False), (10, False)]
    periodic.remove_split("a", 3 * MS)
    assert [at(4, b=21), at(5, b=21, c=6)] == [(20, False), (None, False)]
    assert [at(6), at(7), at(8)] == [(None, False), (None, False), (None, True)]


def test_idleness_needs_more_than_the_timeout_of_inactivity() -> None:
    """Inactivity counts from the first check that found no record; equal to the timeout is not yet idle."""
    timer = IdlenessTimer(timeout_ns=100)
    timer.activity()

    assert [timer.check_if_idle(now) for now in (10, 50, 150, 151)] == [False, False, False, True]
    timer.activity()
    assert not timer.check_if_idle(500)


class Grid:
    """Drives ``PeriodicWatermarks`` with a timer at every point of the grid, or only where it asks for one."""

    def __init__(self, every_point: bool, idle_timeout_ms: int | None) -> None:
        self.every_point = every_point
        self.periodic = PeriodicWatermarks(
            lambda: BoundedOutOfOrdernessGenerator(3), 1 * MS, idle_timeout_ms, origin_ns=0
        )
        self.now = 0
        self.out: list[Any] = []

    def advance_to(self, time_ns: int) -> None:
        while True:
            due = (self.now // MS + 1) * MS if self.every_point else self.periodic.due_ns
            if due is None or due > time_ns:
                break
            self.now = due
            emission = self.periodic.on_periodic(due)
            if emission.watermark_ms is not None:
                self.out.append((due, emission.watermark_ms))
            if emission.became_idle:
                self.out.append((due, "idle"))
        self.now = time_ns


@given(
    st.lists(st.tuples(st.integers(0, 5 * MS), st.sampled_from(["a", "b", "end"]), st.integers(0, 50)), max_size=20),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_skipping_points_of_the_grid_changes_no_emission(
    steps: list[tuple[int, str, int]], idle_timeout_ms: int | None
) -> None:
    """Timers only where something can change give the very emissions of a timer at every point."""
    dense, sparse = Grid(True, idle_timeout_ms), Grid(False, idle_timeout_ms)
    for grid in (dense, sparse):
        ended = False
        for name in "ab":
            grid.periodic.add_split(name, 0)
        for delay_ns, what, stamp in steps:
            grid.advance_to(grid.now + delay_ns)
            if what == "end" and not ended:
                ended = True
                grid.periodic.remove_split("b", grid.now)
                continue
            name = "a" if ended else what
            if name != "end" and grid.periodic.on_records(name, [stamp], grid.now):
                grid.out.append((grid.now, "active"))
        grid.advance_to(grid.now + 20 * MS)

    assert sparse.out == dense.out


def test_a_waiting_source_does_not_fire_timers() -> None:
    """After the last record one emission follows; then it asks for no timer until records come again."""
    periodic = PeriodicWatermarks(lambda: BoundedOutOfOrdernessGenerator(0), MS, None, origin_ns=0)
    periodic.add_split("a", 0)
    due = [periodic.due_ns]
    periodic.on_records("a", [100], 10)
    due.append(periodic.due_ns)
    emission = periodic.on_periodic(MS)
    due.append(periodic.due_ns)

    assert (due, emission) == ([None, MS, None], (99, False))


def test_strategies() -> None:
    """The constructors do what their names say."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(7, int).with_idleness(9).with_interval_ns(11)
    assert strategy == WatermarkStrategy(int, 7, 9, 11)
    assert WatermarkStrategy.for_monotonous_timestamps(int) == WatermarkStrategy(int, 0)
    none = WatermarkStrategy.no_watermarks(int)
    assert not none.emits
    assert isinstance(none.create_generator(), NoWatermarksGenerator)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bound_ms": -1}, "bound_ms is -1; it must be a whole number from 0"),
        ({"bound_ms": 1.5}, "bound_ms is 1.5; it must be a whole number from 0"),
        ({"idle_timeout_ms": 0}, "idle_timeout_ms is 0; it must be a whole number from 1"),
        ({"interval_ns": 0}, "interval_ns is 0; it must be a whole number from 1"),
        ({"timestamp_fn": 3}, "timestamp_fn must be callable"),
    ],
)
def test_bad_strategies_are_refused(arguments: dict[str, Any], message: str) -> None:
    """A strategy that cannot work is refused where it is made."""
    with pytest.raises(ConfigurationError, match=message):
        WatermarkStrategy(**arguments)


# --- the operator ---------------------------------------------------------------------------------------------

STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(2, lambda value: value).with_interval_ns(MS)


def test_the_operator_stamps_and_emits_on_its_grid() -> None:
    """Records get timestamps at once, watermarks follow at the next point of the grid and only when they rise."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY))
    harness.process([10, 30, 20])
    assert harness.take() == [Batch([10, 30, 20], [10, 30, 20])]

    harness.advance_ms(1)
    assert harness.take() == [("watermark", 27)]
    harness.process([5])
    harness.advance_ms(5)
    assert harness.take() == [Batch([5], [5])]


def test_columns_keep_their_event_times_and_stay_columns() -> None:
    """Without a function of a row, the watermark follows the newest time of the column."""
    harness = Harness(TimestampsAndWatermarksOperator(WatermarkStrategy.for_bounded_out_of_orderness(5)))
    columns = {"v": np.array([1, 2, 3])}
    batch = ColumnBatch(columns, 3, np.array([10, 30, 20]), np.array([7, 7, 7]))
    harness.operator.process_batch(batch)
    harness.advance_ms(1)

    out, watermark = harness.take()
    assert isinstance(out, ColumnBatch)
    assert (out.values, out.timestamps, out.keys) == ([{"v": 1}, {"v": 2}, {"v": 3}], [10, 30, 20], None)
    assert watermark == ("watermark", 24)
    with pytest.raises(ConfigurationError, match="its records have no timestamps"):
        harness.operator.process_batch(ColumnBatch(columns, 3))


def test_the_operator_stops_watermarks_from_upstream_but_the_last() -> None:
    """Watermarks and idleness from upstream end here; the end of time passes."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY))

    harness.watermark(50)
    harness.operator.process_watermark_status(True)
    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take() == [("watermark", MAX_TIMESTAMP_MS)]


def test_the_operator_declares_idleness_and_activity() -> None:
    """Without records for longer than the timeout the stream is idle; the next record makes it active first."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY.with_idleness(3)))
    harness.process([10])
    harness.advance_ms(5)
    assert harness.take() == [Batch([10], [10]), ("watermark", 7)]
    harness.advance_ms(1)
    assert harness.take() == [("idle", True)]

    harness.process([20])

    assert harness.take() == [("idle", False), Batch([20], [20])]


def test_finish_emits_what_was_reached() -> None:
    """The last watermark does not wait for the grid."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY))
    harness.process([10])
    harness.take()

    harness.finish()

    assert harness.take() == [("watermark", 7)]


def test_nothing_comes_behind_the_watermark_that_ends_the_stream() -> None:
    """Neither the grid nor the end of the input takes event time back."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY))
    harness.process([10])
    harness.watermark(MAX_TIMESTAMP_MS)
    harness.take()

    harness.advance_ms(5)
    harness.finish()

    assert harness.take() == []


def test_a_restored_operator_goes_on_at_the_same_place_of_the_grid() -> None:
    """It repeats its last watermark first, and emits the next one after the rest of the interval."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY))
    harness.process([100])
    harness.advance_ms(1)
    harness.process([200])
    harness.advance_to_ns(START_NS + MS + 400_000)
    checkpoint = harness.snapshot(1)

    restored = Harness(TimestampsAndWatermarksOperator(STRATEGY), restored=checkpoint, now_ns=5 * START_NS)
    restored.process([150])
    assert restored.take() == [("watermark", 97), Batch([150], [150])]
    restored.advance_to_ns(5 * START_NS + 599_999)
    assert restored.take() == []
    restored.advance_to_ns(5 * START_NS + 600_000)
    assert restored.take() == [("watermark", 197)]


def test_a_restored_operator_stays_idle() -> None:
    """An input that was idle at the snapshot is idle after the restore, and one on its way to it keeps its time."""
    strategy = STRATEGY.with_idleness(3)
    harness = Harness(TimestampsAndWatermarksOperator(strategy))
    harness.process([10])
    harness.advance_ms(4)
    nearly = harness.snapshot(1)
    harness.advance_ms(2)
    idle = harness.snapshot(2)

    restored = Harness(TimestampsAndWatermarksOperator(strategy), restored=idle, now_ns=5 * START_NS)
    restored.advance_ms(1)
    assert restored.take() == [("watermark", 7), ("idle", True)]
    restored.process([20])
    assert restored.take() == [("idle", False), Batch([20], [20])]

    restored = Harness(TimestampsAndWatermarksOperator(strategy), restored=nearly, now_ns=5 * START_NS)
    restored.advance_ms(1)
    assert restored.take() == [("watermark", 7)]
    restored.advance_ms(1)
    assert restored.take() == [("idle", True)]


@pytest.mark.parametrize("bad", ["x", 1.5, True, None])
def test_a_timestamp_that_is_no_int_is_refused(bad: Any) -> None:
    """The error names the record whose timestamp is not an int."""
    harness = Harness(TimestampsAndWatermarksOperator(STRATEGY))

    with pytest.raises(UserFunctionError, match=r"^timestamp function of operator 'op' raised TypeError") as caught:
        harness.process([1, bad, 2])

    assert caught.value.record is bad


def _fail_on_2(value: int) -> int:
    if value == 2:
        raise OverflowError
    return value


def test_a_failing_timestamp_function_names_the_record() -> None:
    """The record on which the function raised is named."""
    harness = Harness(TimestampsAndWatermarksOperator(WatermarkStrategy.for_monotonous_timestamps(_fail_on_2)))

    with pytest.raises(UserFunctionError, match="raised OverflowError") as caught:
        harness.process([1, 2, 3])

    assert caught.value.record == 2


def test_watermarks_without_timestamps_are_refused() -> None:
    """A strategy without a timestamp function needs records that have timestamps."""
    harness = Harness(TimestampsAndWatermarksOperator(WatermarkStrategy.for_monotonous_timestamps()))

    with pytest.raises(ConfigurationError, match="its records have no timestamps"):
        harness.process([1])
