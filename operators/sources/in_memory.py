"""Sources that need only memory: a collection, a sequence of ints, a generator function.

All of them are replayable: a position is an index, and the same position gives the same records again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError, check_whole
from engine.elements.source import SourceContext, SplitReader
from state_backends.base import Shape, number, whole

_NS_PER_S = 1_000_000_000


class NumberedSplits(Sequence[str]):
    """Ids ``prefix-0-of-count`` .. for ``count`` splits. The count is in them, as it decides what a split has.

    Ids are made on demand: each subtask takes its own, and together they take each once.
    """

    __slots__ = ("_count", "_prefix")

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix, self._count = prefix, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        numbers = range(self._count)[at]
        return self._id(numbers) if isinstance(numbers, int) else [self._id(number) for number in numbers]

    def __contains__(self, split: object) -> bool:
        return isinstance(split, str) and self.number(split) is not None

    def number(self, split: str) -> int | None:
        """The number in an id, or ``None`` when there is no such split."""
        text = split.removeprefix(f"{self._prefix}-").removesuffix(f"-of-{self._count}")
        # Longer texts are not numbers of ours, and Python refuses to read the longest.
        if not (text.isdecimal() and text.isascii() and len(text) <= len(str(self._count))):
            return None
        number = int(text)
        return number if number < self._count and split == self._id(number) else None

    def _id(self, number: int) -> str:
        return f"{self._prefix}-{number}-of-{self._count}"


def split_index(split: str, prefix: str, count: int, source: str) -> int:
    """The number in a split id. Raises ``JobChangedError`` when the source has no such split."""
    ids = NumberedSplits(prefix, count)
    number = ids.number(split)
    if number is not None:
        return number
    raise JobChangedError(
        f"source {source!r} has no split {split!r}: it has {', '.join(ids[:10])}{', …' if count > 10 else ''}\n"
        "  the checkpoint was taken with another number of splits, or by another kind of source\n"
        "  restore with the source as it was, or start without the checkpoint"
    )


def start_in(first: int, last: int, position: int | None, split: str, source: str) -> int:
    """Where to begin in a split whose records have the numbers from ``first`` up to ``last``.

    Raises ``JobChangedError`` for a position outside, where the records would be different ones.
    """
    if position is None:
        return first
    if first <= position <= last:
        return position
    raise JobChangedError(
        f"source {source!r} had come to position {position} of split {split!r}, which goes from {first} to {last} now\n"
        "  restore with the source as it was, or start without the checkpoint"
    )


@dataclass(frozen=True, slots=True)
class Pause:
    """Between the items of a collection: no record is available for ``duration_ms`` of virtual time.

    It begins when the source reaches it: at the end of the slice of records before it.
    """

    duration_ms: int

    def __post_init__(self) -> None:
        check_whole("duration_ms of a Pause", self.duration_ms)


# By module and class, to recognize a table without an import of its library: the source of its rows as dicts.
_SOURCES_OF_TABLES = {
    ("pandas", "DataFrame"): "CollectionSource(df.to_dict('records'))",
    ("pyspark", "DataFrame"): "spark_source(df), from spark_bridge",
    ("polars", "DataFrame"): "CollectionSource(df.to_dicts())",
    ("polars", "LazyFrame"): "CollectionSource(df.collect().to_dicts())",
    ("pyarrow", "Table"): "CollectionSource(df.to_pylist())",
    ("pyarrow", "RecordBatch"): "CollectionSource(df.to_pylist())",
}


def table_kind(value: object) -> tuple[str, str] | None:
    """The kind of a table, and the source of its rows as dicts; ``None`` for anything else."""
    for base in type(value).__mro__:
        library = base.__module__.partition(".")[0]
        source = _SOURCES_OF_TABLES.get((library, base.__name__))
        if source is not None:
            return f"{library} {base.__name__}", source
    return None


def _items_of(items: Iterable[Any]) -> list[Any]:
    """Raises ``ConfigurationError`` for a table, which Python iterates by columns, not by rows."""
    found = table_kind(items)
    if found is not None:
        kind, source = found
        raise ConfigurationError(
            f"CollectionSource got a {kind} (df), whose items are its columns, not its rows\n"
            f"  fix: for rows as dicts, write {source};\n"
            "    or write df to Parquet files and read them with FileSource and ParquetFormat"
        )
    return list(items)


class CollectionSource:
    """The items of a collection, in order. Item ``i`` belongs to split ``i mod splits``.

    A ``Pause`` among the items holds back its split. A snapshot during a pause restores to its beginning.

    Raises ``ConfigurationError`` for a DataFrame or another table, and says how to get its rows.
    """

    position_shape = staticmethod(whole)

    def __init__(self, items: Iterable[Any], splits: int = 1) -> None:
        check_whole("splits", splits)
        everything = _items_of(items)
        self._collections = [everything[index::splits] for index in range(splits)]

    @classmethod
    def of_splits(cls, *collections: Iterable[Any]) -> CollectionSource:
        """One split per collection."""
        source = cls((), max(1, len(collections)))
        source._collections = [_items_of(items) for items in collections] or [[]]
        return source

    def splits(self, context: SourceContext) -> Sequence[str]:
        return NumberedSplits("collection", len(self._collections))

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader that begins after item ``position - 1`` of ``split``."""
        index = split_index(split, "collection", len(self._collections), context.name)
        items = self._collections[index]
        return _CollectionReader(items, start_in(0, len(items), position, split, context.name))


class _CollectionReader:
    __slots__ = ("_items", "_position", "_resume_at_ns", "_segment_end")

    def __init__(self, items: list[Any], position: int) -> None:
        self._items = items
        self._position = position
        self._segment_end = position
        self._resume_at_ns: int | None = None

    def read(self, max_records: int) -> Batch | None:
        position, items = self._position, self._items
        if self._resume_at_ns is not None:
            # The reader was told to come back at this time, so the pause is over.
            self._resume_at_ns = None
            position += 1
            self._segment_end = position
        if position == len(items):
            self._position = position
            return None
        if position == self._segment_end:
            self._segment_end = _next_pause(items, position)
        stop = min(position + max_records, self._segment_end)
        self._position = stop
        return Batch(items[position:stop])

    def position(self) -> int:
        return self._position

    def available_at_ns(self, now_ns: int) -> int:
        item = self._items[self._position] if self._position < len(self._items) else None
        if not isinstance(item, Pause):
            return now_ns
        if self._resume_at_ns is None:
            self._resume_at_ns = now_ns + item.duration_ms * 1_000_000
        return self._resume_at_ns

    def close(self) -> None:
        pass


def _next_pause(items: list[Any], start: int) -> int:
    # Look at the types in each stretch, which is many times faster than a look at each item. Stretches grow, so that a
    # collection of many pauses is not searched over and over.
    size = 16
    while start < len(items):
        stretch = items[start : start + size]
        if any(issubclass(kind, Pause) for kind in dict.fromkeys(map(type, stretch))):
            return start + next(at for at, item in enumerate(stretch) if isinstance(item, Pause))
        start, size = start + size, min(2 * size, 4096)
    return len(items)


class RangeSource:
    """Base of sources of numbered records: each split is a contiguous range, a position is the number of a record.

    ``prefix``  of the ids of splits; ``start`` and ``stop``: the numbers of all records, ``stop`` excluded.
    """

    position_shape: Shape = staticmethod(whole)

    def __init__(self, prefix: str, start: int, stop: int, splits: int) -> None:
        check_whole("splits", splits)
        self._prefix, self._start, self._stop, self._splits = prefix, start, stop, splits

    def _reading(self, context: SourceContext) -> Callable[[int, int], Batch]:
        raise TypeError(f"{type(self).__name__} does not say how records are read")

    def splits(self, context: SourceContext) -> Sequence[str]:
        return NumberedSplits(self._prefix, self._splits)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader whose next record has the number ``position``."""
        index = split_index(split, self._prefix, self._splits, context.name)
        first, last = (self._start + at for at in share(self._stop - self._start, index, self._splits))
        return RangeReader(self._reading(context), start_in(first, last, position, split, context.name), last)


class SequenceSource(RangeSource):
    """The ints ``start`` .. ``stop - 1``; each split is a contiguous range (Flink: ``NumberSequenceSource``)."""

    position_shape = staticmethod(number)

    def __init__(self, start: int, stop: int, splits: int = 1) -> None:
        if type(start) is not int or type(stop) is not int or stop < start:
            raise ConfigurationError(f"SequenceSource takes ints start <= stop, got {start!r} and {stop!r}")
        super().__init__("sequence", start, stop, splits)

    def _reading(self, context: SourceContext) -> Callable[[int, int], Batch]:
        return _ints


def _ints(start: int, stop: int) -> Batch:
    return Batch([start] if stop - start == 1 else list(range(start, stop)))


def share(count: int, index: int, parts: int) -> tuple[int, int]:
    """Part ``index`` of ``range(count)`` cut into ``parts`` contiguous parts of nearly equal size."""
    return index * count // parts, (index + 1) * count // parts


class RangeReader:
    """Reads the records whose numbers are from ``start`` up to ``stop``, by ``read(start, stop)``."""

    __slots__ = ("_next", "_read", "_stop")

    def __init__(self, read: Callable[[int, int], Batch], start: int, stop: int) -> None:
        self._read, self._next, self._stop = read, start, stop

    def exhausted(self) -> bool:
        """Whether all records of the split have been returned."""
        return self._next >= self._stop

    def read(self, max_records: int) -> Batch | None:
        start = self._next
        if start >= self._stop:
            return None
        stop = min(start + max_records, self._stop)
        batch = self._read(start, stop)
        self._next = stop
        return batch

    def position(self) -> int:
        return self._next

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns

    def close(self) -> None:
        pass


class GeneratorSource(RangeSource):
    """Records ``0 .. count - 1``, made by ``make_batch(start, stop) -> list`` on demand.

    ``make_batch`` must be a pure function of its arguments and give the same records for every way to cut the range;
    each split is a contiguous range. With ``rate_per_s`` record ``k`` of a split is available ``k * splits / rate``
    seconds of virtual time after the split was opened. A restored split starts this count again and does not make up
    for its downtime.
    """

    def __init__(
        self, make_batch: Callable[[int, int], list[Any]], count: int, splits: int = 1, rate_per_s: int | None = None
    ) -> None:
        check_whole("count", count, 0)
        check_whole("rate_per_s", rate_per_s, or_none=True)
        super().__init__("generator", 0, count, splits)
        self._make_batch, self._rate_per_s = make_batch, rate_per_s

    def _reading(self, context: SourceContext) -> Callable[[int, int], Batch]:
        return partial(_made, self._make_batch, context)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader that waits until records are due."""
        reader = super().open_split(split, position, context)
        assert isinstance(reader, RangeReader), reader
        return reader if self._rate_per_s is None else _RateLimitedReader(reader, self._rate_per_s, self._splits)


def _made(make_batch: Callable[[int, int], list[Any]], context: SourceContext, start: int, stop: int) -> Batch:
    try:
        records: Any = make_batch(start, stop)
        if not isinstance(records, list) or len(records) != stop - start:
            raise ValueError(f"must return a list of {stop - start} records, got {type(records).__name__}")
    except Exception as error:
        asked = range(start, stop)
        raise UserFunctionError(context.name, "make_batch", asked, context.attempt, error) from error
    return Batch(records)


class _RateLimitedReader:
    """Emits no record before its time.

    A reader has no clock. After the last record known to be due it returns an empty batch; from the following
    ``available_at_ns(now)`` it learns how many more are due by now.
    """

    __slots__ = ("_due", "_opened_at_ns", "_rate_per_s", "_reader", "_sent", "_splits")

    def __init__(self, reader: RangeReader, rate_per_s: int, splits: int) -> None:
        self._reader = reader
        self._rate_per_s = rate_per_s
        self._splits = splits
        self._opened_at_ns: int | None = None
        self._sent = self._due = 0

    def read(self, max_records: int) -> Batch | None:
        if self._reader.exhausted():
            return None
        room = min(max_records, self._due - self._sent)
        if room < 1:
            return Batch([])
        batch = self._reader.read(room)
        assert batch is not None
        self._sent += len(batch)
        return batch

    def position(self) -> int:
        return self._reader.position()

    def available_at_ns(self, now_ns: int) -> int:
        if self._opened_at_ns is None:
            self._opened_at_ns = now_ns
        elapsed_ns = now_ns - self._opened_at_ns
        # Record k is due at floor(k * splits * 1e9 / rate) ns.
        self._due = ((elapsed_ns + 1) * self._rate_per_s - 1) // (self._splits * _NS_PER_S) + 1
        if self._due > self._sent:
            return now_ns
        return self._opened_at_ns + self._sent * self._splits * _NS_PER_S // self._rate_per_s

    def close(self) -> None:
        self._reader.close()
