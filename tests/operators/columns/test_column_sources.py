"""Columnar sources: positions, splits, event times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.elements.columns import ColumnBatch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError
from engine.elements.source import Source
from operators.columns import ColumnGeneratorSource, ColumnSource
from operators.sources import SourceOperator
from operators.time import WatermarkStrategy
from tests.operators.harness import Harness, read_all
from tests.operators.sources.test_in_memory import SourceWorld, drain


def squares(start: int, stop: int) -> dict[str, Any]:
    """The squares of a range, and their roots as event times."""
    numbers = np.arange(start, stop)
    return {"square": numbers * numbers, "ms": numbers}


SOURCES: dict[str, Callable[[int, int], Source]] = {
    "columns": lambda count, splits: ColumnSource(squares(0, count), splits, timestamps="ms"),
    "generator": lambda count, splits: ColumnGeneratorSource(squares, count, splits, timestamps="ms"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_record_once_from_any_position(kind: str) -> None:
    """Splits give contiguous ranges; a reader opened where another stopped gives the rest."""

    @given(st.integers(0, 25), st.integers(1, 4), st.integers(1, 7), st.integers(0, 4))
    def check(count: int, splits: int, size: int, reads: int) -> None:
        source, world = SOURCES[kind](count, splits), SourceWorld()
        found: list[Any] = []
        for split in source.splits(world):
            reader = source.open_split(split, None, world)
            before: list[Any] = []
            for _ in range(reads):
                batch = reader.read(size)
                if batch is not None:
                    assert isinstance(batch, ColumnBatch)
                    assert 0 < len(batch) <= size
                    assert batch.timestamps == [row["ms"] for row in batch.values]
                    before += batch.values
            rest = drain(source.open_split(split, reader.position(), world), size)
            assert before + rest == drain(source.open_split(split, None, world), 1)
            assert drain(reader, size) == rest
            found += before + rest
        assert [row["ms"] for row in found] == list(range(count))

    check()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("splits", [1, 3])
def test_columns_pass_the_source_operator(kind: str, splits: int) -> None:
    """Pieces of several splits in one batch stay columns, and watermarks follow their event times."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    harness = Harness(SourceOperator(SOURCES[kind](20, splits), strategy, records_per_turn=2))
    events = read_all(harness, batch_size=7, cost_ns=10**8)
    batches = [one for one in events if isinstance(one, ColumnBatch)]
    watermarks = [ms for one in events if isinstance(one, tuple) and one[0] == "watermark" for ms in one[1:]]

    assert not [one for one in events if not isinstance(one, (ColumnBatch, tuple))]
    assert sorted(row["ms"] for batch in batches for row in batch.values) == list(range(20))
    assert all(batch.timestamps == [row["ms"] for row in batch.values] for batch in batches)
    assert watermarks
    assert watermarks == sorted(watermarks)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_split_of_another_number_is_refused(kind: str) -> None:
    """The content of a split depends on the number of splits."""
    split = SOURCES[kind](10, 3).splits(SourceWorld())[1]
    with pytest.raises(JobChangedError, match="another number of splits"):
        SOURCES[kind](10, 2).open_split(split, None, SourceWorld())


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [1], "b": [1, 2]}, {}, "column 'b' has 2 records where there are 1"),
        ({"a": [None]}, {}, "NoneType"),
        ([1, 2], {}, "a dict from names to arrays"),
        ({"a": [1.5]}, {"timestamps": "a"}, "'a' must be a column of whole ms.*is of float64"),
        ({"a": [1]}, {"timestamps": "b"}, "'b' must be a column of whole ms.*is not among a"),
        ({"a": [1]}, {"splits": 0}, "splits is 0; it must be a whole number from 1"),
    ],
)
def test_columns_that_are_no_source(columns: Any, options: dict[str, Any], message: str) -> None:
    """They are refused when the source is made."""
    with pytest.raises(ConfigurationError, match=message):
        ColumnSource(columns, **options)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"ms": [1]}, "column 'ms' has 1 records where there are 4"),
        ({"other": [1, 2, 3, 4]}, "'ms' must be a column of whole ms"),
        ([1, 2, 3, 4], "a dict from names to arrays"),
    ],
)
def test_a_generator_that_gives_something_else(returned: Any, message: str) -> None:
    """The error names the records that were requested."""
    source = ColumnGeneratorSource(lambda start, stop: returned, 10, timestamps="ms")
    reader = source.open_split("column-generator-0-of-1", 2, SourceWorld())
    with pytest.raises(UserFunctionError, match=rf"make_columns of(.|\n)*{message}(.|\n)*range\(2, 6\)"):
        reader.read(4)
    assert reader.position() == 2


def test_a_source_leaves_the_arrays_alone() -> None:
    """The arrays are shared, not copied, and cannot be changed through the source."""
    mine = np.arange(4)
    reader = ColumnSource({"a": mine}).open_split("columns-0-of-1", None, SourceWorld())
    batch = reader.read(3)

    assert isinstance(batch, ColumnBatch)
    assert batch.columns["a"].base is mine
    assert mine.flags.writeable
    assert not batch.columns["a"].flags.writeable
