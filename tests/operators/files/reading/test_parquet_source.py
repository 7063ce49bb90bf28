"""Parquet files as a source: row groups, positions, columns and rows, types, files that are no Parquet or others."""

from __future__ import annotations

import datetime
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from engine.elements.columns import ColumnBatch
from engine.elements.errors import ConfigurationError, StateError
from operators.files.formats import CorruptFileError
from operators.files.reading import FileSource, ParquetInputFormat
from tests.operators.files.reading.test_file_source import file_system
from tests.operators.sources.test_in_memory import SourceWorld, drain

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PATH = "/in/data.parquet"
ROWS = [{"id": number, "name": f"n{number % 7}", "x": number / 4} for number in range(50)]


def encoded(table: Any, rows_per_group: int = 8) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, row_group_size=rows_per_group)
    return sink.getvalue()


def world(content: bytes | None = None) -> SourceWorld:
    if content is None:
        content = encoded(pyarrow.Table.from_pylist(ROWS))
    return SourceWorld(file_system({PATH: content}))


def batches(source: FileSource, place: SourceWorld, size: int) -> Iterator[Any]:
    for split in source.splits(place):
        reader = source.open_split(split, None, place)
        while (batch := reader.read(size)) is not None:
            yield batch


@pytest.mark.parametrize("split_bytes", [None, 1, 300, 10**6])
@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_rows_resume_at_every_position(split_bytes: int | None, size: int) -> None:
    """Over the ends of row groups and splits, in order."""
    place = world()
    source = FileSource(PATH, ParquetInputFormat(record="dict"), split_bytes=split_bytes)
    splits = source.splits(place)
    assert len(splits) == {None: 1, 1: 7, 10**6: 1}.get(split_bytes, len(splits))
    seen: list[Any] = []
    for split in splits:
        reader = source.open_split(split, None, place)
        expected = drain(source.open_split(split, None, place), 100)
        read: list[Any] = []
        while (batch := reader.read(size)) is not None:
            read += batch.values
            assert read + drain(source.open_split(split, reader.position(), place), size) == expected
        assert drain(source.open_split(split, reader.position(), place)) == []
        seen += read
    assert seen == ROWS


def test_a_position_is_a_row_group_and_rows_behind_it() -> None:
    """A reader opens at a position without reading the rows before it."""
    place = world()
    reader = FileSource(PATH, ParquetInputFormat()).open_split(PATH, None, place)
    assert reader.position()[:2] == (4, 0)
    reader.read(3)
    assert reader.position()[:2] == (4, 3)
    reader.read(100)
    reader.read(2)
    offset, rows, _ = reader.position()
    assert (offset > 4, rows) == (True, 2)


def test_splits_that_are_pulled_are_the_same_row_groups() -> None:
    """Their offsets and lengths cover the file."""
    place = world()
    source = FileSource(PATH, ParquetInputFormat(record="tuple"), split_bytes=1, assignment="pull")
    splits = source.enumerate_splits(place, is_first=True)

    assert [split.id for split in splits] == list(source.splits(place))
    assert sum(split.length for split in splits) == place.fs.size(PATH)
    assert [row for split in splits for row in drain(source.open_split(split.id, None, place))] == [
        tuple(row.values()) for row in ROWS
    ]


def test_columns_come_as_arrays() -> None:
    """Only the requested columns come, with event times from one of them."""
    source = FileSource(PATH, ParquetInputFormat(["x", "id"], timestamps="id"))
    read = list(batches(source, world(), 5))

    assert all(isinstance(batch, ColumnBatch) for batch in read)
    assert [value for batch in read for value in batch.values] == [{"x": row["x"], "id": row["id"]} for row in ROWS]
    assert [stamp for batch in read for stamp in batch.timestamps] == list(range(50))


def test_values_are_plain_ones() -> None:
    """Timestamps are whole ms, dictionaries are their values; rows contain nulls and lists, columns refuse them."""
    stamp = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    table = pyarrow.table(
        {
            "t": pyarrow.array([stamp, None], pyarrow.timestamp("us", "UTC")),
            "d": pyarrow.array(["a", "b"]).dictionary_encode(),
            "l": pyarrow.array([[1, 2], []]),
            "i": pyarrow.array([1, None], pyarrow.int16()),
        }
    )
    place = world(encoded(table))
    assert drain(FileSource(PATH, ParquetInputFormat(record="dict")).open_split(PATH, None, place)) == [
        {"t": 1356998400000, "d": "a", "l": [1, 2], "i": 1},
        {"t": None, "d": "b", "l": [], "i": None},
    ]
    with pytest.raises(ConfigurationError, match=r"column 'i' holds nulls.*\n  or read rows, with record='dict'"):
        drain(FileSource(PATH, ParquetInputFormat(["i"])).open_split(PATH, None, place))


@pytest.mark.parametrize(
    ("format", "table", "message"),
    [
        (ParquetInputFormat(["z"]), {"a": [1]}, "there is no column 'z'; the file has a"),
        (ParquetInputFormat(), {"a": [datetime.date(2013, 1, 1)]}, "column 'a' is of type date32"),
        (ParquetInputFormat(types={"a": "STRING"}), {"a": [1]}, "declared STRING, and the file has it as int64"),
        (ParquetInputFormat(types={"a": "BIGINT"}), {"a": [1.5]}, "declared BIGINT, and the file has it as double"),
        (ParquetInputFormat(timestamps="a"), {"a": ["x"]}, "timestamps='a' is no column of whole ms"),
        (
            ParquetInputFormat(record="dict"),
            {"a": [datetime.datetime(2013, 1, 1, 0, 0, 0, 1)]},
            "column 'a': .*would lose data",
        ),
    ],
)
def test_what_does_not_fit_names_file_and_column(format: Any, table: dict[str, Any], message: str) -> None:
    """The error also says what to do about it."""
    place = world(encoded(pyarrow.table(table)))
    with pytest.raises(ConfigurationError, match=f"{PATH}: .*{message}"):
        drain(FileSource(PATH, format).open_split(PATH, None, place))


def test_whole_numbers_are_doubles_where_doubles_are_declared() -> None:
    """The other way round, a conversion would lose digits."""
    place = world(encoded(pyarrow.table({"a": [1, 2]})))
    source = FileSource(PATH, ParquetInputFormat(record="tuple", types={"a": "DOUBLE"}))
    rows = drain(source.open_split(PATH, None, place))
    assert [(type(one), one) for (one,) in rows] == [(float, 1.0), (float, 2.0)]


def test_another_file_of_the_same_name_is_refused() -> None:
    """The footer tells them apart; a file that is not Parquet at all is reported as such."""
    source = FileSource(PATH, ParquetInputFormat())
    reader = source.open_split(PATH, None, world())
    reader.read(3)
    other = encoded(pyarrow.Table.from_pylist(ROWS[:20]))
    with pytest.raises(StateError, match="has changed since the checkpoint: its footer is another one"):
        source.open_split(PATH, reader.position(), world(other))
    problem = rf"{PATH}: not a whole Parquet file.*\n.*or read it with the format that it has"
    for content in (b"", b"id,name\n", other[:-10]):
        with pytest.raises(CorruptFileError, match=problem):
            source.open_split(PATH, None, world(content))


def test_a_file_without_rows_has_an_end() -> None:
    """This holds also for a file without any row group."""
    place = world(encoded(pyarrow.table({"a": pyarrow.array([], pyarrow.int64())})))
    source = FileSource(PATH, ParquetInputFormat())
    reader = source.open_split(PATH, None, place)
    assert drain(reader) == []
    assert drain(source.open_split(PATH, reader.position(), place)) == []


def test_a_reader_that_is_copied_goes_on() -> None:
    """Files that pyarrow has open are opened again."""
    reader: Any = FileSource(PATH, ParquetInputFormat(record="tuple")).open_split(PATH, None, world())
    reader.read(3)
    reader._context = None
    copy = pickle.loads(pickle.dumps(reader))
    assert drain(copy) == drain(reader) == [tuple(row.values()) for row in ROWS[3:]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": "a"}, "give a list of names"),
        ({"record": "list"}, "record must be 'columns', 'dict' or 'tuple'"),
        ({"record": "dict", "timestamps": "a"}, "timestamps= names a column"),
        ({"columns": ["b"], "timestamps": "a"}, "timestamps='a' is not among"),
    ],
)
def test_formats_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    """They are refused when they are made."""
    with pytest.raises(ConfigurationError, match=message):
        ParquetInputFormat(**arguments)
