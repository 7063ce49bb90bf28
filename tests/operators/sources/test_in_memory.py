"""Collections, sequences and generators: positions, pauses, rates."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError
from engine.elements.source import Source, SplitReader
from operators.sources import CollectionSource, GeneratorSource, Pause, SequenceSource
from state_backends.files import MemoryFileSystem

S = 1_000_000_000


class SourceWorld:
    """A source context that remembers."""

    name = "numbers"
    attempt = 2

    def __init__(self, fs: MemoryFileSystem | None = None) -> None:
        self.fs = fs or MemoryFileSystem()
        self.side: list[tuple[str, Batch]] = []
        self.counters: dict[str, int] = {}

    def file_system(self) -> MemoryFileSystem:
        return self.fs

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.side.append((tag, batch))

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount


def drain(reader: SplitReader, size: int = 3) -> list[Any]:
    """Everything that is left; pauses are waited for."""
    values: list[Any] = []
    now_ns = 0
    while (batch := reader.read(size)) is not None:
        values += batch.values
        if not batch:
            now_ns = reader.available_at_ns(now_ns)
    return values


def rows_of(source: Source) -> list[Any]:
    world = SourceWorld()
    return [row for split in source.splits(world) for row in drain(source.open_split(split, None, world))]


def squares(start: int, stop: int) -> list[int]:
    return [number * number for number in range(start, stop)]


SOURCES: dict[str, Callable[[int, int], Source]] = {
    "collection": lambda count, splits: CollectionSource(
        [item for number in range(count) for item in (number * number, Pause(1))][: 2 * count], splits
    ),
    "sequence": lambda count, splits: SequenceSource(-3, count - 3, splits),
    "generator": lambda count, splits: GeneratorSource(squares, count, splits),
    "limited": lambda count, splits: GeneratorSource(squares, count, splits, rate_per_s=1000),
}


@pytest.mark.parametrize("kind", SOURCES)
@given(st.integers(0, 30), st.integers(1, 4), st.integers(1, 7), st.data())
def test_a_reader_resumes_exactly_behind_the_last_record(
    kind: str, count: int, splits: int, size: int, data: st.DataObject
) -> None:
    """Whatever was read before, a reader opened at the position returns exactly the rest; nothing is lost or read
    twice over all splits."""
    source, world = SOURCES[kind](count, splits), SourceWorld()
    everything: list[Any] = []
    for split in source.splits(world):
        whole = drain(source.open_split(split, None, world))
        reader = source.open_split(split, None, world)
        seen: list[Any] = []
        now_ns = 0
        for _ in range(data.draw(st.integers(0, 12))):
            batch = reader.read(size)
            assert batch is None or len(batch) <= size
            seen += batch.values if batch else []
            if batch is not None and not batch:
                now_ns = reader.available_at_ns(now_ns)
        rest = drain(source.open_split(split, reader.position(), world), size)

        assert seen + rest == whole
        everything += whole
    expected = list(range(-3, count - 3)) if kind == "sequence" else squares(0, count)
    assert sorted(everything) == sorted(expected)


def test_a_collection_deals_its_items_out() -> None:
    """Item i belongs to split i mod n; ``of_splits`` assigns it explicitly."""
    world = SourceWorld()
    dealt = CollectionSource("abcde", splits=2)
    stated = CollectionSource.of_splits("ace", "bd")

    for source in (dealt, stated):
        read = [drain(source.open_split(split, None, world)) for split in source.splits(world)]
        assert read == [["a", "c", "e"], ["b", "d"]]


def test_a_pause_holds_the_split_back() -> None:
    """Nothing is available during the pause, whose length counts from the moment when the reader reached it."""
    reader = CollectionSource(["a", Pause(5), "b"]).open_split("collection-0-of-1", None, SourceWorld())
    assert reader.read(10) == Batch(["a"])

    assert reader.read(10) == Batch([])
    assert reader.available_at_ns(1_000) == 5_001_000
    assert reader.available_at_ns(2_000_000) == 5_001_000
    assert (reader.read(10), reader.read(10)) == (Batch(["b"]), None)


def test_a_pause_begins_anew_after_a_restore() -> None:
    """The position during a pause is the pause itself."""
    source = CollectionSource([Pause(5), "b"])
    reader = source.open_split("collection-0-of-1", None, SourceWorld())
    reader.read(1)
    reader.available_at_ns(0)

    restored = source.open_split("collection-0-of-1", reader.position(), SourceWorld())

    assert restored.read(1) == Batch([])
    assert restored.available_at_ns(100) == 5_000_100


@given(st.integers(1, 5000), st.integers(1, 3), st.lists(st.integers(0, S), min_size=1, max_size=30))
def test_a_rate_is_kept_exactly(rate: int, splits: int, waits: list[int]) -> None:
    """By time t after opening, exactly the records k with k * splits / rate <= t were available, and the time given
    for the next one is its own."""
    source = GeneratorSource(squares, 10**9, splits, rate_per_s=rate)
    reader = source.open_split(f"generator-0-of-{splits}", None, SourceWorld())
    opened_ns = now_ns = 7_000
    seen = 0
    for wait_ns in [0, *waits]:
        now_ns += wait_ns
        while reader.available_at_ns(now_ns) <= now_ns:
            batch = reader.read(1 << 20)
            assert batch
            seen += len(batch)
        next_ns = reader.available_at_ns(now_ns)

        assert (seen - 1) * splits * S // rate <= now_ns - opened_ns < seen * splits * S // rate
        assert next_ns == opened_ns + seen * splits * S // rate


def _fail(start: int, stop: int) -> list[int]:
    raise RuntimeError("no data")


@pytest.mark.parametrize(
    ("make_batch", "problem"),
    [
        (_fail, "RuntimeError: no data"),
        (lambda start, stop: [1], "must return a list of 3 records, got list"),
        (range, "must return a list of 3 records, got range"),
    ],
)
def test_a_bad_make_batch_is_named(make_batch: Any, problem: str) -> None:
    """A generator function that fails or returns something else is blamed with the range it was asked for."""
    reader = GeneratorSource(make_batch, 10).open_split("generator-0-of-1", 4, SourceWorld())

    with pytest.raises(UserFunctionError, match=rf"^make_batch of operator 'numbers' raised .*{problem}") as caught:
        reader.read(3)

    assert (caught.value.record, caught.value.attempt) == (range(4, 7), 2)


@pytest.mark.parametrize("kind", ["collection", "sequence", "generator"])
@pytest.mark.parametrize("split", ["2-of-2", "0-of-1", "0", "other-0-of-2", "x", ""])
def test_an_unknown_split_is_a_changed_job(kind: str, split: str) -> None:
    """A checkpoint of a source with other splits is refused, not read as something else."""
    name = f"{kind}-{split}" if split[:1].isdecimal() else split

    with pytest.raises(JobChangedError, match=f"source 'numbers' has no split {name!r}: it has {kind}-0-of-2, "):
        SOURCES[kind](4, 2).open_split(name, None, SourceWorld())


def _table_class(library: str, name: str) -> type:
    """A class as libraries define it: in a module below their name, iterated by columns."""
    return type(name, (), {"__module__": f"{library}.core.frame", "__iter__": lambda self: iter(["a", "b"])})


@pytest.mark.parametrize("library", ["pandas", "pyspark", "polars"])
def test_a_data_frame_is_told_how_to_give_its_rows(library: str) -> None:
    """Python iterates a DataFrame by its columns: it and its subclasses are refused, with what to write instead."""
    frame = type("GeoDataFrame", (_table_class(library, "DataFrame"),), {"__module__": "geo"})()

    for make in (CollectionSource, CollectionSource.of_splits):
        with pytest.raises(ConfigurationError, match=rf"got a {library} DataFrame .*\n  fix: for rows as dicts"):
            make(frame)
    assert rows_of(CollectionSource(_table_class("mine", "DataFrame")())) == ["a", "b"]


@pytest.mark.parametrize(
    "table_of",
    [lambda: pytest.importorskip("pandas").DataFrame, lambda: pytest.importorskip("pyarrow").table],
    ids=["pandas", "pyarrow"],
)
def test_the_advice_for_a_table_gives_its_rows(table_of: Callable[[], Callable[[Any], Any]]) -> None:
    """The code that the error advises is a source of the rows, as dicts of plain values."""
    df = table_of()({"k": ["x", "y"], "n": [1, 2]})
    with pytest.raises(ConfigurationError) as caught:
        CollectionSource(df)

    (advice,) = re.findall(r"write (CollectionSource\(.*\));", str(caught.value))
    rows = rows_of(eval(advice, {"CollectionSource": CollectionSource, "df": df}))
    assert repr(rows) == "[{'k': 'x', 'n': 1}, {'k': 'y', 'n': 2}]"


@pytest.mark.parametrize(
    "make",
    [
        lambda: CollectionSource([], splits=0),
        lambda: SequenceSource(3, 2),
        lambda: SequenceSource(0, 1.5),  # type: ignore[arg-type]
        lambda: GeneratorSource(squares, -1),
        lambda: GeneratorSource(squares, 1, rate_per_s=0),
        lambda: Pause(0),
    ],
)
def test_impossible_arguments_are_refused(make: Callable[[], object]) -> None:
    """Arguments that make no sense are refused where the source is made."""
    with pytest.raises(ConfigurationError):
        make()


def steps_in_sources(action: Callable[[], object]) -> int:
    """How many bytecodes of ``operators`` an action takes: this does not depend on the speed of the machine."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if "operators" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_finding_the_splits_of_all_subtasks_is_linear_in_their_number(kind: str) -> None:
    """Twice the subtasks take twice the work to learn which split is theirs, and to open it."""

    def open_all(source: Any, subtasks: int) -> None:
        for subtask in range(subtasks):
            ids = source.splits(world)
            (mine,) = ids[subtask::subtasks]
            assert mine in ids
            source.open_split(mine, None, world)

    world, small, large = SourceWorld(), SOURCES[kind](400, 60), SOURCES[kind](400, 120)
    of_few = steps_in_sources(lambda: open_all(small, 60))
    of_many = steps_in_sources(lambda: open_all(large, 120))

    assert of_few > 0
    assert of_many == pytest.approx(2 * of_few, rel=0.1)


def test_only_ids_as_they_are_written_name_a_split() -> None:
    """Another spelling of a number is no split of the source."""
    ids = SequenceSource(0, 10, splits=5).splits(SourceWorld())

    assert list(ids) == [f"sequence-{number}-of-5" for number in range(5)]
    assert all(split in ids for split in ids)
    for other in ("5", "05", "-1", "+1", " 1", "1_0", "²", "١", "9" * 5000, ""):
        assert f"sequence-{other}-of-5" not in ids
    for other in ("sequence-1-of-6", "1-of-5", "sequence-1", "collection-1-of-5", "", 1):
        assert other not in ids
    assert ids[-1] == "sequence-4-of-5"
