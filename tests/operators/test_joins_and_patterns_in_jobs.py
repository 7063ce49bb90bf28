"""Whole jobs of asynchronous requests, joins, deduplication, top-n and patterns: killed, and restored at another
parallelism, in every mode, against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.graph.job import Job
from engine.graph.stream import Stream
from engine.runtime.config import CostModel
from operators.async_io import AsyncContext, AsyncResult, AsyncRetryStrategy
from operators.basic import CollectedResults
from operators.patterns import Pattern
from operators.ranking import greatest, materialize
from operators.sources import CollectionSource
from operators.time import WatermarkStrategy
from operators.windows import EventTimeSessionWindows, TumblingEventTimeWindows
from state_backends.files import MemoryFileSystem
from tests.cases import crossed
from tests.runtime.support import US, checked, every, execution

LEFT = [(number % 5, number, "ab"[number * 7 % 3 % 2]) for number in range(60)]
RIGHT = [(number % 7, number * 2, number) for number in range(40)]
"""(key, event time, value)."""
MODES = ["aligned", "unaligned", "aligned-timeout"]


def key_of(record: Any) -> Any:
    return record[0]


def time_of(record: Any) -> int:
    return int(record[1])


def freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, freeze(one)) for name, one in value.items())
    return tuple(map(freeze, value)) if isinstance(value, (list, tuple)) else value


class Lookup:
    """A service that takes 0 to 12 µs, fails at first for some records, and has no answer for every third record."""

    def invoke(self, record: Any, context: AsyncContext) -> AsyncResult:
        after_ns = record[1] * 7919 % 13 * US
        if context.attempt == 1 and record[1] % 4 == 0:
            return AsyncResult.failed(ConnectionError("busy"), after_ns)
        return AsyncResult.of_all([] if record[1] % 3 == 0 else [(record[0], record[1] * 10)], after_ns)


def looked_up(ordered: bool) -> Callable[[Stream, Stream], Stream]:
    retries = AsyncRetryStrategy.fixed_delay(1, 2 * US)
    return lambda left, right: left.rebalance().async_map(
        Lookup(), ordered=ordered, capacity=4, retries=retries, name="both"
    )


def wanted_lookups() -> list[Any]:
    return [(key, time * 10) for key, time, _ in LEFT if time % 3]


def same_window(left: Any, right: Any) -> bool:
    return key_of(left) == key_of(right) and time_of(left) // 10 == time_of(right) // 10


def pairs(condition: Callable[[Any, Any], bool]) -> list[Any]:
    return [(left, right) for left in LEFT for right in RIGHT if condition(left, right)]


def counts_of(lefts: list[Any], rights: list[Any]) -> list[Any]:
    return [((lefts or rights)[0][0], len(lefts), len(rights))]


def wanted_groups() -> list[Any]:
    """Sessions of both sides together: a record joins if it is at most 3 ms after the last one."""
    wanted = []
    for key in range(7):
        times = sorted([(time_of(one), 0) for one in LEFT if key_of(one) == key] + [
            (time_of(one), 1) for one in RIGHT if key_of(one) == key
        ])  # fmt: skip
        session: list[tuple[int, int]] = []
        for one in [*times, None]:
            if session and (one is None or one[0] > session[-1][0] + 3):
                sides = [side for _, side in session]
                wanted.append((key, sides.count(0), sides.count(1)))
                session = []
            if one is not None:
                session.append(one)
    return wanted


def near(left: Any, right: Any) -> bool:
    return key_of(left) == key_of(right) and -3 <= time_of(right) - time_of(left) < 8


def wanted_full_join() -> list[Any]:
    met = pairs(lambda left, right: bool(key_of(left) == key_of(right)))
    lefts, rights = {left for left, _ in met}, {right for _, right in met}
    alone: list[Any] = [(left, None) for left in LEFT if left not in lefts]
    return met + alone + [(None, right) for right in RIGHT if right not in rights]


def of_each_key(pick: Callable[[list[Any]], Iterable[Any]]) -> list[Any]:
    return [one for key in range(5) for one in pick([record for record in LEFT if key_of(record) == key])]


A_THEN_B = (
    Pattern.begin("a", skip="skip_past_last_event")
    .where(lambda record: record[2] == "a")
    .followed_by("b")
    .where(lambda record: record[2] == "b")
    .within(20)
)


def wanted_matches() -> list[Any]:
    def of_one_key(records: list[Any]) -> list[Any]:
        found, begun = [], []
        for record in records:
            begun = [one for one in begun if time_of(record) - time_of(one) < 20]
            if record[2] == "a":
                begun.append(record)
            elif begun:
                found.append({"a": [begun[0]], "b": [record]})
                begun = []
        return found

    return of_each_key(of_one_key)


def best(record: Any) -> int:
    return time_of(record) * 37 % 11


def in_order(records: list[Any]) -> list[Any]:
    # Equal orders are decided by the record's encoding, which for these has the order of the ints.
    return sorted(records, key=lambda record: (-best(record), record))


@dataclass(frozen=True)
class Case:
    """A stream made of two, the result of its records, and the expected result."""

    name: str
    build: Callable[[Stream, Stream], Stream]
    wanted: Callable[[], list[Any]]
    result: Callable[[list[Any]], list[Any]] = list


CASES = [
    Case("async in order", looked_up(True), wanted_lookups),
    Case("async out of order", looked_up(False), wanted_lookups),
    Case(
        "window join",
        lambda left, right: left.join(right).where(key_of).equal_to(key_of).window(TumblingEventTimeWindows.of(10))
        .apply(lambda a, b: (a, b), name="both"),
        lambda: pairs(same_window),
    ),
    Case(
        "co-group",
        lambda left, right: left.co_group(right).where(key_of).equal_to(key_of)
        .window(EventTimeSessionWindows.with_gap(3)).apply(counts_of, name="both"),
        wanted_groups,
    ),
    Case(
        "interval join",
        lambda left, right: left.key_by(key_of).interval_join(right.key_by(key_of)).between(-3, 8)
        .upper_bound_exclusive().apply(lambda a, b: (a, b), name="both"),
        lambda: pairs(near),
    ),
    Case(
        "full join",
        lambda left, right: left.connect(right).key_by(key_of, key_of).join("full", name="both"),
        wanted_full_join,
        materialize,
    ),
    Case(
        "first",
        lambda left, right: left.key_by(key_of).deduplicate(name="both"),
        lambda: of_each_key(lambda records: records[:1]),
    ),
    Case(
        "first by event time",
        lambda left, right: left.key_by(key_of).deduplicate(time="event", append_only=True, name="both"),
        lambda: of_each_key(lambda records: records[:1]),
    ),
    Case(
        "last",
        lambda left, right: left.key_by(key_of).deduplicate("last", time="event", name="both"),
        lambda: of_each_key(lambda records: records[-1:]),
        materialize,
    ),
    Case(
        "top 3",
        lambda left, right: left.key_by(key_of).top_n(3, best, name="both"),
        lambda: of_each_key(lambda records: enumerate(in_order(records)[:3], 1)),
        materialize,
    ),
    Case(
        "top 2 of a window",
        lambda left, right: left.key_by(key_of).window(TumblingEventTimeWindows.of(20))
        .aggregate(greatest(2, best), name="both"),
        lambda: [
            (key, start, start + 20, in_order(records)[:2])
            for key in range(5)
            for start in (0, 20, 40)
            if (records := [one for one in LEFT if key_of(one) == key and start <= time_of(one) < start + 20])
        ],
    ),
    Case("pattern", lambda left, right: left.key_by(key_of).pattern(A_THEN_B, name="both"), wanted_matches),
]  # fmt: skip
BY_NAME = {case.name: case for case in CASES}


def job(case: Case, results: CollectedResults, parallelism: int) -> Job:
    made = Job("job", parallelism=parallelism, max_parallelism=16)
    in_order = WatermarkStrategy.for_monotonous_timestamps(time_of).with_interval_ns(3 * US)
    # At unlike speeds, neither side can stay ahead of the common watermark for long; no record is late.
    left = made.source(CollectionSource(LEFT), name="left", parallelism=1, watermarks=in_order)
    right = made.source(CollectionSource(RIGHT), name="right", parallelism=1, watermarks=in_order)
    stream = case.build(left, right)
    right.filter(lambda record: False, name="unused").collect([], name="nothing")
    return stream.collect(results, name="out", uid="out")


def check(case: Case, results: CollectedResults) -> None:
    wanted = Counter(map(freeze, case.wanted()))
    assert len(wanted) > 4
    assert Counter(map(freeze, case.result(results.records))) == wanted


SETTINGS: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=6 * US)}


@pytest.mark.parametrize("case", BY_NAME)
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_undisturbed(case: str, batch_size: int) -> None:
    """The result is that of plain Python, one record at a time and all at once, with work that costs time."""
    results = CollectedResults()
    settings = {**SETTINGS, "batch_size": batch_size, "cost": CostModel(record_ns=700)}
    checked(execution(job(BY_NAME[case], results, 2), **settings)).raise_on_failure()
    check(BY_NAME[case], results)


@crossed(quick=2, case=BY_NAME, mode=MODES)
def test_killed_again_and_again_every_record_counts_once(case: str, mode: str) -> None:
    """Kills of a source and of the operator at many instants change nothing of what is committed."""
    for number, target in enumerate(["left", "both", "both[0]", "both"]):
        results = CollectedResults()
        made = execution(
            job(BY_NAME[case], results, 2),
            kills=[(target, (number * 5 + 7) * US), (target, (number * 3 + 31) * US)],
            seed=f"{target} {number}",
            mode=mode,
            restart=FixedDelayRestart(None, 1 * US),
            **SETTINGS,
        )
        made.run().raise_on_failure()
        check(BY_NAME[case], results)


@crossed(quick=2, case=BY_NAME, parallelism=[(1, 3), (3, 2)], mode=MODES)
def test_restored_at_another_parallelism_every_record_counts_once(
    case: str, parallelism: tuple[int, int], mode: str
) -> None:
    """A job that died goes on from its checkpoint with more or fewer subtasks."""
    files = MemoryFileSystem()
    settings: dict[str, Any] = {**SETTINGS, "mode": mode, "file_system": files}
    results = CollectedResults()
    died = execution(
        job(BY_NAME[case], results, parallelism[0]), kills=[("both", 41 * US)], restart=NoRestart(), **settings
    ).run()
    assert died.state == "failed"
    assert died.checkpoints.completed > 0

    made = execution(job(BY_NAME[case], results, parallelism[1]), restore=True, incarnation=2, **settings)
    checked(made).raise_on_failure()

    check(BY_NAME[case], results)
