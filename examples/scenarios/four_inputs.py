"""Three and four inputs: barriers and watermarks of each must be waited for, in every kind of union or join.

Four sources of unequal speed meet in five ways: in a union, in a function with two inputs that are both unions, in a
window join, in an interval join, and in a regular join. If an operator aligns on some of its channels only, uses the
watermark of one input for both, or restores the state of one side to the other, a row is missing or differs.
Rows say which records met, not in which order::

    weir explore examples/scenarios/four_inputs.py
    weir explore examples/scenarios/four_inputs.py --param way=interval --mode unaligned

``way`` is one of ``all`` (the default), ``union``, ``connected``, ``window``, ``interval`` and ``regular``.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import (
    CollectionSource,
    ConfigurationError,
    Job,
    KeyedCoProcessFunction,
    KeyedProcessContext,
    Stream,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from operators.log.connectors import LogSink

Record = tuple[str, str, int]
"""Source, key, and event time in ms."""

NAMES = ("north", "east", "south", "west")
KEYS = "ab"
STEPS = 3
STEP_MS = 10
WAYS = ("union", "connected", "window", "interval", "regular")

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 4,
    "checkpoint_interval": "9rec",
    "modes": ["aligned", "unaligned", "aligned-timeout"],
    "aligned_timeout_ns": 2_000,
    "cost.record_ns": 300,
    "cost.stragglers.west": 4,
    "cost.slow_links.south": 4_000,
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once", "aligned-timeout": "exactly-once"},
}


class CountSides(KeyedCoProcessFunction):
    """Counts the records of a key by input; emits ``(key, input, how many)``."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """One number per input."""
        self._counts = ctx.map_state("counts")

    def process_element1(self, value: Record, ctx: KeyedProcessContext) -> Iterable[object]:
        """From the first union."""
        return self._counted(value[1], 1)

    def process_element2(self, value: Record, ctx: KeyedProcessContext) -> Iterable[object]:
        """From the second one."""
        return self._counted(value[1], 2)

    def _counted(self, key: str, side: int) -> Iterable[object]:
        count = (self._counts.get(side) or 0) + 1
        self._counts.put(side, count)
        return [("connected", key, side, count)]


def _key(record: Record) -> str:
    return record[1]


def _pair(way: str, left: Record, right: Record) -> tuple[str, str, str, int, str, int]:
    return (way, left[1], left[0], left[2], right[0], right[2])


def _streams(made: Job) -> list[Stream]:
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda record: record[2]).with_interval_ns(2_000)
    return [
        made.source(
            CollectionSource([(name, key, step * STEP_MS + number) for step in range(STEPS) for key in KEYS]),
            watermarks=strategy, name=name, uid=name, parallelism=1,
        )
        for number, name in enumerate(NAMES)
    ]  # fmt: skip


def job(way: str = "all", parallelism: int | None = None) -> Job:
    """Four sources, and as many operators as there are ways; one sink."""
    if way not in ("all", *WAYS):
        raise ConfigurationError(f"way is {way!r}; it must be 'all' or one of {', '.join(WAYS)}")
    made = Job(f"four-inputs-{way}", parallelism=parallelism or 2, max_parallelism=8)
    north, east, south, west = _streams(made)
    left, right = north.union(east), south.union(west)
    met = {name: _met(name, left, right) for name in WAYS if way in ("all", name)}
    first, *others = met.values()
    rows = first.union(*others) if others else first
    return rows.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)


def _met(way: str, left: Stream, right: Stream) -> Stream:
    if way == "union":
        ones = left.union(right).key_by(_key, value=lambda record: (record[1], 1))
        counts = ones.reduce(lambda one, two: (one[0], one[1] + two[1]), name=way, uid=way)
        return counts.map(lambda row: ("union", *row), name="union-rows", uid="union-rows")
    if way == "connected":
        return left.connect(right).key_by(_key, _key).process(CountSides, name=way, uid=way)
    if way == "window":
        joined = left.join(right).where(_key).equal_to(_key).window(TumblingEventTimeWindows.of(2 * STEP_MS))
        return joined.apply(lambda one, two: _pair("window", one, two), name=way, uid=way)
    if way == "interval":
        between = left.key_by(_key).interval_join(right.key_by(_key)).between(-STEP_MS, STEP_MS // 2)
        return between.apply(lambda one, two: _pair("interval", one, two), name=way, uid=way)
    changes = left.connect(right).key_by(_key, _key).join("inner", name=way, uid=way)
    return changes.map(lambda change: _pair("regular", *change[1]), name="regular-rows", uid="regular-rows")
