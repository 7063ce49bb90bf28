"""Small jobs of every family of operators, whose rows are written by hand: evaluator and engine both commit these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from engine import (
    AggregateFunction,
    CollectedResults,
    CollectionSource,
    Job,
    KeyedProcessFunction,
    Pattern,
    Pause,
    ProcessWindowFunction,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    aggregates,
    mean_of,
    min_of,
    record_count,
    sum_of,
)
from engine.explore.opinion import ORDERS
from operators.basic import KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from operators.windows import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    Trigger,
    TriggerResult,
)
from tests.explore.opinion.support import agreed, opinion_on, rows, subject_of

IN_TIME = WatermarkStrategy.for_bounded_out_of_orderness(500, lambda reading: reading[1])
FAR = WatermarkStrategy.for_bounded_out_of_orderness(100_000, lambda reading: reading[1])


def key(record: Any) -> Any:
    return record[0]


def texts(*records: Any) -> list[str]:
    return sorted(map(repr, records))


def out(stream: Any, name: str = "out") -> None:
    stream.collect(CollectedResults(), name=name, uid=name)


def test_stateless_functions_and_side_outputs() -> None:
    """Map, flat_map, filter, a process function with a side output."""

    def split(value: int, ctx: Any) -> Iterable[int] | None:
        if value % 2:
            ctx.side_output("odd", value)
            return None
        return [value, value]

    def build(job: Job) -> None:
        numbers = job.source(CollectionSource(range(6)))
        parts = numbers.map(lambda n: n + 1).filter(lambda n: n != 3).process(split)
        out(parts.flat_map(range))
        out(parts.side_output("odd"), "odd")

    assert agreed(build, parallelism=2) == {
        "out": texts(*[*range(2), *range(2), *range(4), *range(4), *range(6), *range(6)]),
        "odd": texts(1, 5),
    }


def test_a_running_reduction_and_an_aggregate() -> None:
    """One row for every record."""

    def build(job: Job) -> None:
        pairs = job.source(CollectionSource([("a", 1), ("b", 5), ("a", 2), ("a", 4)])).key_by(key)
        out(pairs.reduce(lambda one, other: (one[0], one[1] + other[1])))
        out(pairs.aggregate(aggregates.maximum(lambda pair: pair[1])), "greatest")

    assert agreed(build) == {
        "out": texts(("a", 1), ("b", 5), ("a", 3), ("a", 7)),
        "greatest": texts(("a", 1), ("b", 5), ("a", 2), ("a", 4)),
    }


class Remember(KeyedProcessFunction):
    """All kinds of state, and a timer that sets another one."""

    def open(self, ctx: Any) -> None:
        self.count = ctx.value_state("count", 0)
        self.seen = ctx.list_state("seen")
        self.most = ctx.reducing_state("most", max)
        self.by_time = ctx.map_state("by-time")

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update(self.count.get() + 1)
        self.seen.add(value[1])
        self.most.add(value[1])
        self.by_time.put(value[1], ctx.timestamp_ms)
        ctx.register_event_time_timer(1_000)
        if value[1] > 300:
            ctx.delete_event_time_timer(1_000)
            ctx.register_event_time_timer(2_000)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        if timestamp_ms == 2_000:
            ctx.register_event_time_timer(2_500)
        states = (self.count.get(), self.seen.get(), self.most.get(), self.by_time.keys())
        return [(ctx.current_key, timestamp_ms, *states)]


def test_keyed_state_and_event_time_timers() -> None:
    """Timers fire once for each time and key; one that is deleted does not."""

    def build(job: Job) -> None:
        readings = job.source(CollectionSource([("a", 100), ("b", 200), ("a", 400)]), watermarks=FAR)
        out(readings.key_by(key).process(Remember))

    assert agreed(build)["out"] == texts(
        ("b", 1_000, 1, [200], 200, [200]),
        ("a", 2_000, 2, [100, 400], 400, [100, 400]),
        ("a", 2_500, 2, [100, 400], 400, [100, 400]),
    )


class Meet(KeyedCoProcessFunction):
    """Pairs each record with those seen on the other side before it."""

    def open(self, ctx: Any) -> None:
        self.left, self.right = ctx.list_state("left"), ctx.list_state("right")

    def process_element1(self, value: Any, ctx: Any) -> list[Any]:
        self.left.add(value[1])
        return [(value[1], other) for other in self.right.get() or ()]

    def process_element2(self, value: Any, ctx: Any) -> list[Any]:
        self.right.add(value[1])
        return [(other, value[1]) for other in self.left.get() or ()]


def test_two_inputs() -> None:
    """Both sides share the state of a key; each has its own function where there is none."""

    def build(job: Job) -> None:
        left = job.source(CollectionSource([("a", 1), ("b", 2), ("a", 3)]), name="left", uid="left")
        right = job.source(CollectionSource([("a", 10), ("c", 20)]), name="right", uid="right")
        out(left.connect(right).key_by(key, key).process(Meet))
        out(left.connect(right).map(key, lambda pair: pair[1]), "mapped")

    assert agreed(build, parallelism=2) == {"out": texts((1, 10), (3, 10)), "mapped": texts("a", "b", "a", 10, 20)}


class Limit(KeyedBroadcastProcessFunction):
    """Adds up, and says what is above the limit; a new limit asks for all keys."""

    def open(self, ctx: Any) -> None:
        self.paid = ctx.value_state("paid", 0)

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        self.paid.update(self.paid.get() + value[1])
        limit = ctx.broadcast_state("limits").get("limit")
        return [(ctx.current_key, self.paid.get())] if limit is not None and self.paid.get() > limit else []

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.broadcast_state("limits").put(*value)


def test_broadcast_state_goes_to_every_subtask() -> None:
    """The pause of the data lets the limit come first."""

    def build(job: Job) -> None:
        payments = [Pause(10), ("ann", 40), ("bob", 70), ("ann", 50), ("bob", 40)]
        data = job.source(CollectionSource(payments), name="data", uid="data", parallelism=1)
        limits = job.source(CollectionSource([("limit", 60)]), name="limits", uid="limits", parallelism=1)
        out(data.key_by(key).connect(limits.broadcast("limits")).process(Limit))

    assert agreed(build, parallelism=3)["out"] == texts(("bob", 70), ("ann", 90), ("bob", 110))


def test_records_that_are_broadcast_are_copied() -> None:
    """Each subtask of the next operator gets one."""

    def build(job: Job) -> None:
        numbers = job.source(CollectionSource([1, 2]), parallelism=1)
        out(numbers.broadcast().map(lambda n: n, parallelism=3))

    assert agreed(build)["out"] == texts(1, 1, 1, 2, 2, 2)


CLICKS = [("ann", 1_000), ("bob", 2_500), ("ann", 3_000), ("ann", 9_500), Pause(10), ("ann", 7_000), ("bob", 21_000)]
CLICKED = WatermarkStrategy.for_bounded_out_of_orderness(3_000, lambda click: click[1])


def test_windows_as_the_page_shows_them() -> None:
    """The example of docs/event-time-and-windows.md, with what it prints."""

    def build(job: Job) -> None:
        clicks = job.source(CollectionSource(CLICKS), watermarks=CLICKED, name="clicks", uid="clicks")
        visitors = clicks.key_by(key)
        out(visitors.window(SlidingEventTimeWindows.of(10_000, 5_000)).aggregate(aggregates.count()), "sliding")
        out(visitors.window(EventTimeSessionWindows.with_gap(4_000)).aggregate(aggregates.count()), "sessions")
        early = visitors.window(TumblingEventTimeWindows.of(12_000)).trigger(ContinuousEventTimeTrigger.of(4_000))
        out(early.aggregate(aggregates.count()), "early")
        out(
            clicks.window_all(TumblingEventTimeWindows.of(12_000)).process(
                lambda window, values: [(window.start, sorted({visitor for visitor, _ in values}))]
            ),
            "all",
        )

    assert agreed(build) == {
        "sliding": texts(
            ("ann", -5000, 5000, 2), ("bob", -5000, 5000, 1), ("ann", 0, 10000, 4), ("bob", 0, 10000, 1),
            ("ann", 5000, 15000, 2), ("bob", 15000, 25000, 1), ("bob", 20000, 30000, 1),
        ),
        "sessions": texts(("bob", 2500, 6500, 1), ("ann", 1000, 13500, 4), ("bob", 21000, 25000, 1)),
        "early": texts(
            ("ann", 0, 12000, 3), ("bob", 0, 12000, 1), ("ann", 0, 12000, 4), ("bob", 0, 12000, 1),
            ("ann", 0, 12000, 4), ("bob", 0, 12000, 1), ("bob", 12000, 24000, 1),
        ),
        "all": texts((0, ["ann", "bob"]), (12000, ["bob"])),
    }  # fmt: skip


READINGS = [("a", 100), ("b", 400), ("a", 900), ("a", 1_600), ("a", 2_700), Pause(10), ("a", 950), ("a", 1_990)]


@pytest.mark.parametrize(
    ("lateness_ms", "more", "late"), [(0, [], [("a", 950), ("a", 1_990)]), (500, [("a", 1000, 2000, 2)], [("a", 950)])]
)
def test_late_records_as_the_page_shows_them(lateness_ms: int, more: list[Any], late: list[Any]) -> None:
    """The other example there: within the allowed lateness a window fires again."""

    def build(job: Job) -> None:
        readings = job.source(CollectionSource(READINGS), watermarks=IN_TIME, name="readings", uid="readings")
        windows = readings.key_by(key).window(TumblingEventTimeWindows.of(1_000))
        counted = windows.allowed_lateness(lateness_ms).side_output_late("late").aggregate(aggregates.count())
        out(counted)
        out(counted.side_output("late"), "late")

    first = [("a", 0, 1000, 2), ("b", 0, 1000, 1), ("a", 1000, 2000, 1), ("a", 2000, 3000, 1)]
    assert agreed(build) == {"out": texts(*first, *more), "late": texts(*late)}


class EverySecond(Trigger):
    """One of a user: fires with every second record, by state of its own, and with the last of its time."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Any, ctx: Any) -> TriggerResult:
        count = ctx.reducing_state("records", lambda one, other: one + other)
        count.add(1)
        return TriggerResult.CONTINUE if count.get() % 2 else TriggerResult.FIRE

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.reducing_state("records", lambda one, other: one + other).clear()


class HowOften(ProcessWindowFunction):
    """State of the window and of the key."""

    def process(self, key: Any, ctx: Any, elements: Any) -> list[Any]:
        fired, total = ctx.window_state.value_state("fired", 0), ctx.global_state.value_state("total", 0)
        fired.update(fired.get() + 1)
        total.update(total.get() + 1)
        return [(key, ctx.window.start, sorted(n for _, n in elements), fired.get(), total.get())]


def test_triggers_evictors_and_functions_with_state() -> None:
    """By count, with an evictor, by a trigger and in a function of the user."""
    records = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("a", 12), ("a", 13)]

    def build(job: Job) -> None:
        keyed = job.source(CollectionSource(records), watermarks=FAR, name="in", uid="in").key_by(key)
        numbers = AggregateFunction(list, lambda seen, one: [*seen, one[1]], list, lambda a, b: a + b)
        out(keyed.count_window(2).aggregate(numbers), "count")
        out(keyed.count_window(3, 2).aggregate(numbers), "sliding")
        tens = TumblingEventTimeWindows.of(10)
        out(keyed.window(tens).trigger(EverySecond()).process(HowOften), "own")
        out(keyed.window(tens).evictor(TimeEvictor.of(3)).aggregate(numbers), "newest")
        purged = keyed.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(3)))
        out(purged.evictor(CountEvictor.of(2)).aggregate(numbers), "purged")

    assert agreed(build) == {
        "count": texts(("a", [1, 2]), ("a", [4, 12])),
        "sliding": texts(("a", [1, 2]), ("a", [2, 4, 12])),
        "own": texts(("a", 0, [1, 2], 1, 1), ("a", 10, [12, 13], 1, 2)),
        "newest": texts(("a", 0, 10, [2, 4]), ("b", 0, 10, [3]), ("a", 10, 20, [12, 13])),
        "purged": texts(("a", [2, 4])),
    }


ORDERS_PAID = [("o1", 1_000), ("o2", 2_000), ("o3", 11_000), ("o4", 12_000)]
PAYMENTS = [("o1", 4_000), ("o3", 9_500), ("o4", 31_000), ("o1", 9_000)]


def test_joins_as_the_page_shows_them() -> None:
    """Window join, co-group and interval join of docs/joins.md."""

    def both(order: Any, payment: Any) -> Any:
        return order[0], order[1], payment[1]

    def build(job: Job) -> None:
        orders = job.source(CollectionSource(ORDERS_PAID), name="orders", uid="orders", watermarks=FAR)
        payments = job.source(CollectionSource(PAYMENTS), name="payments", uid="payments", watermarks=FAR)
        windows = TumblingEventTimeWindows.of(10_000)
        out(orders.join(payments).where(key).equal_to(key).window(windows).apply(both), "window")
        grouped = orders.co_group(payments).where(key).equal_to(key).window(windows)
        out(grouped.apply(lambda lefts, rights: [(order, len(rights)) for order in lefts]), "outer")
        near = orders.key_by(key).interval_join(payments.key_by(key)).between(-2_000, 5_000)
        out(near.apply(both), "interval")

    assert agreed(build) == {
        "window": texts(("o1", 1000, 4000), ("o1", 1000, 9000)),
        "outer": texts((("o1", 1000), 2), (("o2", 2000), 0), (("o3", 11000), 0), (("o4", 12000), 0)),
        "interval": texts(("o1", 1000, 4000), ("o3", 11000, 9500)),
    }


def test_a_regular_join_takes_back_what_it_said() -> None:
    """The left side is there before; the pause of the right side sees to it."""

    def build(job: Job) -> None:
        left = job.source(CollectionSource([("a", 1), ("a", 2), ("b", 3)]), name="left", uid="left")
        right = job.source(CollectionSource([Pause(10), ("a", 9), ("c", 8)]), name="right", uid="right")
        out(left.connect(right).key_by(key, key).join("full"))

    assert agreed(build)["out"] == texts(
        ("+I", (("a", 1), None)), ("+I", (("a", 2), None)), ("+I", (("b", 3), None)),
        ("-D", (("a", 1), None)), ("+I", (("a", 1), ("a", 9))),
        ("-D", (("a", 2), None)), ("+I", (("a", 2), ("a", 9))),
        ("+I", (None, ("c", 8))),
    )  # fmt: skip


BIDS = [
    ("a", "ann", 5, 1), ("a", "bob", 9, 2), ("a", "ann", 7, 9), ("b", "cid", 3, 4), ("a", "cid", 8, 12),
    ("b", "bob", 6, 3),
]  # fmt: skip


def test_ranking_as_the_page_shows_it() -> None:
    """Deduplication and top-n of docs/ranking.md."""

    def build(job: Job) -> None:
        in_time = WatermarkStrategy.for_bounded_out_of_orderness(100, lambda bid: bid[3])
        auctions = job.source(CollectionSource(BIDS), name="bids", uid="bids", watermarks=in_time).key_by(key)
        out(auctions.deduplicate("first", time="event", append_only=True), "first")
        out(auctions.deduplicate(), "seen")
        out(auctions.deduplicate("last", time="event"), "last")
        out(auctions.top_n(2, by=lambda bid: bid[2]).filter(lambda change: change[1][1][0] == "a"), "top")

    said = agreed(build)
    assert said["first"] == texts(BIDS[0], BIDS[5])
    assert said["seen"] == texts(BIDS[0], BIDS[3])
    assert said["last"] == texts(
        ("+I", BIDS[0]), ("-U", BIDS[0]), ("+U", BIDS[1]), ("-U", BIDS[1]), ("+U", BIDS[2]), ("+I", BIDS[3]),
        ("-U", BIDS[2]), ("+U", BIDS[4]),
    )  # fmt: skip
    assert said["top"] == texts(
        ("+I", (1, BIDS[0])), ("-U", (1, BIDS[0])), ("+U", (1, BIDS[1])), ("+I", (2, BIDS[0])), ("-U", (2, BIDS[0])),
        ("+U", (2, BIDS[2])), ("-U", (2, BIDS[2])), ("+U", (2, BIDS[4])),
    )  # fmt: skip


def test_answers_of_a_service() -> None:
    """In order or not, each record has its answer."""

    def build(job: Job) -> None:
        numbers = job.source(CollectionSource(range(5)))
        out(numbers.async_map(lambda n: n * n, latency_ns=lambda n: 1_000 * (5 - n)))
        out(numbers.async_map(lambda n: -n, latency_ns=10, ordered=False, capacity=2), "unordered")

    assert agreed(build) == {"out": texts(0, 1, 4, 9, 16), "unordered": texts(0, -1, -2, -3, -4)}


def test_columns() -> None:
    """Columns in, aggregates of keys, rows out."""

    def build(job: Job) -> None:
        pairs = job.source(CollectionSource([("a", 1), ("b", 5), ("a", 2)])).to_columns("key", types={"n": "BIGINT"})
        doubled = pairs.map_columns(lambda columns: {"key": columns["key"], "n": columns["n"] * 2})
        summed = doubled.filter_columns(lambda columns: columns["n"] > 2).key_by_column("key").sum_column("n", "sum")
        out(summed.to_rows("key", "n", "sum"))

    assert agreed(build)["out"] == texts(("b", 10, 10), ("a", 4, 4))


def test_windows_of_columns() -> None:
    """Several aggregates of each key and window; a key of several columns in windows that overlap."""
    trips = [("a", 1, 0), ("b", 5, 3), ("a", 2, 9), ("a", 4, 22)]

    def build(job: Job) -> None:
        times = WatermarkStrategy.for_bounded_out_of_orderness(100, lambda trip: trip[2])
        columns = job.source(CollectionSource(trips), watermarks=times).to_columns("key", "n", "at")
        windows = columns.key_by_column("key").window(TumblingEventTimeWindows.of(10))
        several = {"n": sum_of("n"), "least": min_of("n"), "mean": mean_of("n"), "trips": record_count()}
        out(windows.aggregate_columns(several).to_rows("key", "window_start", "n", "least", "mean", "trips"))
        names = columns.key_by_column("key", "n").window(SlidingEventTimeWindows.of(10, 5)).max_column("at", "most")
        out(names.to_rows("key", "n", "window_end", "most"), "two")

    said = agreed(build)
    assert said["out"] == texts(("a", 0, 3, 1, 1.5, 2), ("b", 0, 5, 5, 5.0, 1), ("a", 20, 4, 4, 4.0, 1))
    assert said["two"] == texts(
        ("a", 1, 5, 0), ("a", 1, 10, 0), ("b", 5, 5, 3), ("b", 5, 10, 3), ("a", 2, 10, 9), ("a", 2, 15, 9),
        ("a", 4, 25, 22), ("a", 4, 30, 22),
    )  # fmt: skip


def test_records_that_go_round() -> None:
    """A loop: each number is halved until it is odd."""

    def build(job: Job) -> None:
        loop = job.source(CollectionSource([12, 7, 8])).iterate(name="loop")
        halved = loop.map(lambda n: n if n % 2 else n // 2)
        loop.close_with(halved.filter(lambda n: n % 2 == 0))
        out(halved.filter(lambda n: n % 2 == 1))

    assert agreed(build)["out"] == texts(3, 7, 1)


def test_an_idle_split_holds_nobody_back() -> None:
    """The watermark of the other split closes the window; what the idle one then has is late."""

    def build(job: Job) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1]).with_idleness(20)
        busy = [("a", 100), ("a", 1_200)]
        for number in range(8):
            busy += [Pause(15), ("a", 1_300 + number)]
        splits = [busy, [("b", 10), Pause(100), ("b", 20)]]
        readings = job.source(CollectionSource.of_splits(*splits), watermarks=strategy, name="in", uid="in")
        windows = readings.key_by(key).window(TumblingEventTimeWindows.of(1_000)).side_output_late("late")
        counted = windows.aggregate(aggregates.count())
        out(counted)
        out(counted.side_output("late"), "late")

    said = agreed(build)
    assert said["late"] == texts(("b", 20))
    assert said["out"] == texts(("a", 0, 1000, 1), ("b", 0, 1000, 1), ("a", 1000, 2000, 9))


def test_a_job_that_depends_on_the_order_is_told_from_one_that_does_not() -> None:
    """Two sources meet in a running text; how many records there are does not depend on which comes first."""

    def build(job: Job, joined: Any) -> None:
        one = job.source(CollectionSource("ab"), name="one", uid="one")
        other = job.source(CollectionSource("cd"), name="other", uid="other")
        out(one.union(other).key_by(lambda _: 0, value=joined).reduce(lambda a, b: a + b))

    dependent = opinion_on(subject_of(lambda job: build(job, lambda text: text))).dependent
    assert dependent is not None
    assert ORDERS[0].name in dependent
    assert rows(opinion_on(subject_of(lambda job: build(job, lambda _: 1))))["out"] == texts(1, 2, 3, 4)


def test_lateness_that_is_a_matter_of_time_is_dependence_on_order() -> None:
    """Whether the record is late depends on whether a watermark came before it."""

    def build(job: Job) -> None:
        readings = job.source(CollectionSource([("a", 100), ("a", 5_000), ("a", 200)]), watermarks=IN_TIME)
        out(readings.key_by(key).window(TumblingEventTimeWindows.of(1_000)).aggregate(aggregates.count()))

    assert opinion_on(subject_of(build)).dependent is not None


def test_keyed_subtasks_that_meet_again_are_an_order_of_their_own() -> None:
    """Which key comes first after several subtasks is left open."""

    def build(job: Job) -> None:
        pairs = job.source(CollectionSource([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]), parallelism=1)
        counted = pairs.key_by(key).reduce(lambda a, b: a, parallelism=3)
        out(counted.key_by(lambda _: 0, value=key).reduce(lambda a, b: a + b, parallelism=1))

    assert opinion_on(subject_of(build)).dependent is not None


def test_records_that_are_left_out_are_not_evaluated() -> None:
    """By their number in the split, as in a case that was shrunk."""

    def build(job: Job) -> None:
        out(job.source(CollectionSource("abcdef", splits=2), name="in", uid="in"))

    dropped = {"in/collection-0-of-2": ((0, 2),)}
    assert rows(opinion_on(subject_of(build), dropped=dropped))["out"] == texts("e", "b", "d", "f")


class AsksForTheClock(KeyedProcessFunction):
    """Goes by the virtual clock; whatever it catches does not hide that."""

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        try:
            return [ctx.processing_time_ms()]
        except Exception:
            return [0]


def test_only_what_comes_after_is_unknown() -> None:
    """One sink is downstream of a function that asks for the clock, the other is not."""

    def build(job: Job) -> None:
        pairs = job.source(CollectionSource([("a", 1)]))
        out(pairs.key_by(key).process(AsksForTheClock, name="clock").map(str), "behind")
        out(pairs, "beside")

    opinion = opinion_on(subject_of(build))
    assert list(opinion.unknown) == ["behind"]
    assert "'clock': it asks for the virtual clock" in opinion.unknown["behind"]
    assert opinion.endings == ({"beside": ["('a', 1)"]},)


def test_patterns_as_the_page_shows_them() -> None:
    """Both examples of docs/patterns.md, without what runs out of time."""
    payments = [("1", 2, 10), ("2", 3, 12), ("1", 900, 40), ("1", 1, 25), ("2", 4, 50), ("2", 700, 300), ("1", 5, 400)]
    events = [("o1", "ordered", 10), ("o1", "paid", 20)]
    events += [("o2", "ordered", 30), ("o2", "cancelled", 35), ("o2", "paid", 40)]
    probing = (
        Pattern.begin("small", skip="skip_past_last_event")
        .where(lambda payment: payment[1] < 10)
        .one_or_more()
        .followed_by("large")
        .where(lambda payment: payment[1] > 500)
        .where_matched(lambda payment, matched: payment[1] > 100 * sum(amount for _, amount, _ in matched["small"]))
        .within(60_000)
    )
    kept = Pattern.begin("order").where(lambda event: event[1] == "ordered")
    kept = kept.not_followed_by("cancelled").where(lambda event: event[1] == "cancelled")
    kept = kept.followed_by("payment").where(lambda event: event[1] == "paid")

    def build(job: Job) -> None:
        in_time = WatermarkStrategy.for_bounded_out_of_orderness(30_000, lambda record: record[2] * 1_000)
        paid = job.source(CollectionSource(payments), name="payments", uid="payments", watermarks=in_time)
        ordered = job.source(CollectionSource(events), name="orders", uid="orders", watermarks=in_time)
        out(paid.key_by(key).pattern(probing), "probing")
        out(ordered.key_by(key).pattern(kept), "kept")

    assert agreed(build) == {
        "probing": texts({"small": [("1", 2, 10), ("1", 1, 25)], "large": [("1", 900, 40)]}),
        "kept": texts({"order": [("o1", "ordered", 10)], "payment": [("o1", "paid", 20)]}),
    }
