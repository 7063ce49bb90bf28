"""A job with much keyed state: values, lists, maps and timers of many keys, and how its rows follow from its input.

Run like any other: ``weir run tests/crash/jobs/stateful_job.py --storage DIR --out DIR``. Sources race, so a row
depends only on how many records its key has had before, never on which records. It depends on all kinds of state at
once: one entry that is lost or comes back shows in some row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine import FileSink, Job, SequenceSource
from operators.basic import KeyedProcessFunction

KEYS = 1_500
PADDING = "p" * 60


class Visits(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.count = ctx.value_state("count", 0)
        self.latest = ctx.list_state("latest")
        self.all = ctx.map_state("all")

    def process_element(self, key: int, ctx: Any) -> list[Any]:
        count = self.count.get() + 1
        self.count.update(count)
        self.latest.add(count)
        latest = list(self.latest.get())
        if len(latest) == 4:
            self.latest.clear()
        self.all.put(count, f"{key * 31 + count} {PADDING}")
        if count > 6:
            self.all.remove(count - 6)
        if count % 3 == 0:
            # No watermark comes before the end of the input: timers gather until then.
            ctx.register_event_time_timer(count)
        return [("visit", key, count, latest, number_in(self.all.get(max(1, count - 5))))]

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        return [("timer", ctx.current_key, timestamp_ms, [], self.count.get())]


def number_in(text: str) -> int:
    """The number in an entry of the map."""
    return int(text.split(maxsplit=1)[0])


def job(records: str = "24000") -> Job:
    """Two sources, two subtasks that hold the state, two sinks."""
    job = Job("killed", parallelism=2)
    numbers = job.source(SequenceSource(0, int(records), splits=4), name="numbers")
    visits = numbers.map(lambda number: number * 7919 % KEYS, name="key").key_by(lambda key: key)
    rows = visits.process(Visits(), name="visits")
    return rows.sink(FileSink("counts", bucket=lambda row: f"remainder={row[1] % 3}"), name="files")


def expected_rows(records: int) -> dict[str, list[str]]:
    """The expected output of the job, computed without the engine."""
    visits: dict[int, int] = {}
    rows: dict[str, list[str]] = {}
    for number in range(records):
        key = number * 7919 % KEYS
        visits[key] = visits.get(key, 0) + 1
    for key, total in visits.items():
        rows.setdefault(f"remainder={key % 3}", []).extend(_rows_of(key, total))
    return {partition: sorted(lines) for partition, lines in sorted(rows.items())}


def _rows_of(key: int, total: int) -> Iterator[str]:
    for count in range(1, total + 1):
        first = (count - 1) // 4 * 4 + 1
        latest = ",".join(map(str, range(first, count + 1)))
        yield f'["visit",{key},{count},[{latest}],{key * 31 + max(1, count - 5)}]'
    yield from (f'["timer",{key},{time},[],{total}]' for time in range(3, total + 1, 3))
