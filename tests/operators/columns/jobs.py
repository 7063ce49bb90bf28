"""One pipeline in several forms: all in columns, all in rows, and mixed, over the same records.

Records have a key and a value; some are left out, the value is doubled, and summed up per key. A result has the
key, the running sum and the event time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.graph.job import Job
from engine.graph.stream import Stream
from operators.basic import CollectedResults
from operators.columns import ColumnSource
from operators.sources import CollectionSource
from operators.time import WatermarkStrategy

Record = tuple[Any, Any, int]
"""Key, value, event time."""


def keep(value: Any) -> Any:
    """Which records stay; for one value and for a column."""
    return value % 5 != 0


def columns(stream: Stream) -> Stream:
    doubled = stream.filter_columns(lambda c: keep(c["v"]), name="some").map_columns(
        lambda c: {"k": c["k"], "v": c["v"] * 2}, name="double"
    )
    return doubled.key_by_column("k").sum_column("v", name="sum", uid="sum")


def rows(stream: Stream) -> Stream:
    doubled = stream.filter(lambda r: keep(r["v"]), name="some").map(
        lambda r: {"k": r["k"], "v": r["v"] * 2}, name="double"
    )
    return doubled.key_by(lambda r: r["k"]).reduce(
        lambda before, r: {"k": r["k"], "v": before["v"] + r["v"]}, name="sum", uid="sum"
    )


def rows_then_columns(stream: Stream) -> Stream:
    doubled = stream.filter(lambda r: keep(r["v"]), name="some").map(
        lambda r: {"k": r["k"], "v": r["v"] * 2}, name="double"
    )
    return doubled.key_by(lambda r: r["k"]).sum_column("v", name="sum", uid="sum")


def every_other(stream: Stream) -> Stream:
    """Columns and rows by turns, and the records dealt out anew in between."""
    some = stream.filter_columns(lambda c: keep(c["v"]), name="some").to_rows("k", "v", name="as-rows")
    doubled = some.map(lambda pair: (pair[0], pair[1] * 2), name="double").to_columns("k", "v", name="as-columns")
    return doubled.key_by_column("k").sum_column("v", name="sum", uid="sum")


def sums_in_rows(stream: Stream) -> Stream:
    """Columns up to the key; then ``reduce``, with the number alone as state, as ``sum_column`` keeps it."""
    doubled = stream.filter_columns(lambda c: keep(c["v"]), name="some").map_columns(
        lambda c: {"k": c["k"], "v": c["v"] * 2}, name="double"
    )
    keyed = doubled.key_by(lambda r: r["k"], value=lambda r: r["v"])
    return keyed.reduce(lambda before, value: before + value, name="sum", uid="sum")


FORMS: dict[str, Callable[[Stream], Stream]] = {
    "rows": rows,
    "columns": columns,
    "rows then columns": rows_then_columns,
    "every other": every_other,
    "sums in rows": sums_in_rows,
}
WITH_COLUMNS = ("columns", "rows then columns", "every other")


@dataclass
class Pipeline:
    """A job over some records, and the results that it has collected."""

    form: str
    records: list[Record]
    parallelism: int = 1
    splits: int = 2
    from_rows: bool = False
    """Whether the source gives dicts."""
    transactional: bool = True
    results: CollectedResults = field(init=False)
    job: Job = field(init=False)

    def __post_init__(self) -> None:
        self.results = CollectedResults(transactional=self.transactional)
        self.job = Job("pipeline", parallelism=self.parallelism)
        stamped = FORMS[self.form](self._source()).process(_with_time, name="time")
        stamped.collect(self.results, name="out")

    def _source(self) -> Stream:
        keys, values, stamps = map(list, zip(*self.records, strict=True)) if self.records else ([], [], [])
        if self.from_rows:
            items = [{"k": key, "v": value, "t": stamp} for key, value, stamp in self.records]
            times = WatermarkStrategy.no_watermarks(lambda row: row["t"])
            return self.job.source(CollectionSource(items, self.splits), watermarks=times, name="in")
        as_longs = np.array(values, dtype=np.int64 if not values or type(values[0]) is int else np.float64)
        table = {"k": keys, "v": as_longs, "t": np.array(stamps, dtype=np.int64)}
        return self.job.source(ColumnSource(table, self.splits, timestamps="t"), name="in")

    @property
    def collected(self) -> list[Any]:
        """Key, sum and event time of each result, in order; without the key after sums in rows."""
        return self.results.records


def _with_time(row: Any, context: Any) -> list[Any]:
    return [(row["k"], row["v"], context.timestamp_ms) if type(row) is dict else (row, context.timestamp_ms)]


def check_sums(records: list[Record], outputs: list[Any]) -> int:
    """For each key the outputs are its running sums over some of its records, in some order, each record once. All
    other records come before these: a job that goes on from a snapshot gives only the rest. Returns how many other
    records there are. Event times tell records apart."""
    of_record = {stamp: (key, value * 2) for key, value, stamp in records if keep(value)}
    stamps = [output[-1] for output in outputs]
    assert len(set(stamps)) == len(stamps), "some record has two results"
    earlier = of_record.keys() - set(stamps)
    sums: dict[Any, Any] = {}
    for stamp in sorted(earlier):
        key, value = of_record[stamp]
        sums[key] = sums.get(key, 0) + value
    for *_, total, stamp in outputs:
        key, value = of_record[stamp]
        sums[key] = sums.get(key, 0) + value
        assert total == sums[key], (key, stamp)
    return len(earlier)


def expected(records: list[Record]) -> list[Any]:
    """The results of one subtask that reads one split."""
    sums: dict[Any, Any] = {}
    found = []
    for key, value, stamp in records:
        if keep(value):
            sums[key] = sums[key] + value * 2 if key in sums else value * 2
            found.append((key, sums[key], stamp))
    return found
