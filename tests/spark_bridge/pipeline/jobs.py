"""Jobs whose committed rows do not depend on the order in which records of different channels come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine import CollectionSource, FileSink, GeneratorSource, Job, TumblingEventTimeWindows, WatermarkStrategy

WORDS = [f"w{number * 7 % 13}" for number in range(600)]
READINGS = [(f"k{number % 5}", number * 10, number) for number in range(800)]


def word_count(parallelism: int = 2) -> Job:
    """A running count for each word."""
    job = Job("words", parallelism=parallelism)
    counts = job.source(CollectionSource(WORDS, splits=2), name="words").map(lambda word: (word, 1), uid="pairs")
    counts = counts.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]), uid="count")
    counts.sink(FileSink("counts"), uid="sink")
    return job


def windows(parallelism: int = 2) -> Job:
    """Sums per key and second; watermarks close the windows."""
    job = Job("windows", parallelism=parallelism)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(50, lambda reading: reading[1])
    readings = job.source(CollectionSource(READINGS, splits=3), name="readings", watermarks=strategy)
    sums = readings.key_by(lambda reading: reading[0]).window(TumblingEventTimeWindows.of(1_000))
    sums.reduce(lambda one, other: (one[0], min(one[1], other[1]), one[2] + other[2])).sink(
        FileSink("sums"), uid="sink"
    )
    return job


def unequal_ends(parallelism: int = 2) -> Job:
    """Two sources, of which one ends in the first batch."""
    job = Job("ends", parallelism=parallelism)
    short = job.source(CollectionSource(range(10)), name="short")
    long = job.source(CollectionSource(range(1_000, 1_900)), name="long")
    short.union(long).rebalance().map(lambda number: number * 2).sink(FileSink("doubled"), uid="sink")
    return job


def sides(parallelism: int = 2) -> Job:
    """Odd numbers leave by a side output, and both ways meet again in a connected stream."""
    job = Job("sides", parallelism=parallelism)
    numbers = job.source(CollectionSource(range(700), splits=2), name="numbers")
    even = numbers.filter(lambda number: number % 2 == 0, name="even").key_by(lambda number: number % 7)
    odd = numbers.filter(lambda number: number % 2 == 1, name="odd").key_by(lambda number: number % 7)
    even.connect(odd).map(lambda number: ("even", number), lambda number: ("odd", number)).sink(
        FileSink("both"), uid="sink"
    )
    return job


def columns(parallelism: int = 2) -> Job:
    """Columns through an exchange by key."""
    job = Job("columns", parallelism=parallelism)
    rows = job.source(GeneratorSource(_rows, 900), name="rows").to_columns("key", "value")
    rows.key_by_column("key").sum_column("value", name="sums").sink(FileSink("sums"), uid="sink")
    return job


def committer(parallelism: int = 2) -> Job:
    """Files that an operator after the sink commits."""
    job = Job("committer", parallelism=parallelism)
    numbers = job.source(CollectionSource(range(700), splits=2), name="numbers").rebalance()
    numbers.map(lambda number: number + 1).sink(FileSink("rows").with_committer(), uid="sink")
    return job


def _rows(start: int, stop: int) -> list[Any]:
    return [{"key": number % 11, "value": number} for number in range(start, stop)]


ALL: Sequence[Callable[[int], Job]] = (word_count, windows, unequal_ends, sides, columns, committer)


def committed(directory: Path) -> Counter[tuple[str, str]]:
    """The lines of all visible files, each with the directory that it is in."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted(directory.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(directory).parts)
        if path.is_file() and not hidden:
            place = str(path.parent.relative_to(directory))
            found.update((place, line) for line in path.read_text(encoding="utf-8").splitlines())
    return found
