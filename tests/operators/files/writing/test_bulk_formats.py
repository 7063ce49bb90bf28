"""Formats that are written in bulk: compressed text and Parquet."""

from __future__ import annotations

import datetime
import gc
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch, checked_columns
from engine.elements.errors import ConfigurationError, MissingDependencyError, StorageError, UserFunctionError
from operators.files.formats import CsvRowFormat, JsonLinesRowFormat
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import (
    BulkTextFormat,
    ParquetFormat,
    RecordError,
    TableRollingPolicy,
    read_committed_parquet,
)
from operators.files.writing.bulk_formats import BLOCK_BYTES
from operators.files.writing.part_files import BulkFormat
from state_backends.files import MemoryFileSystem
from tests.operators.harness import Harness

pa = pytest.importorskip("pyarrow")

SCHEMA = {"id": int, "name": str, "share": float}
ROWS = [{"id": number, "name": f"n{number}", "share": number / 4} for number in range(10)]


def content_of(format: BulkFormat, batches: list[list[Any]]) -> bytes:
    written: list[bytes] = []
    writer = format.open_writer(written.append)
    for records in batches:
        rows, at = format.encode_batch(Batch(records)), 0
        while at < len(rows):
            at = writer.add(rows, at, len(rows))
    writer.finish()
    return b"".join(written)


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz"])
def test_compressed_text_comes_back(compression: Any) -> None:
    """More than one block of it, and the same bytes whatever the batches."""
    format = BulkTextFormat(JsonLinesRowFormat(), compression)
    records = [f"{number}-{'long' * 20}" for number in range(4 * BLOCK_BYTES // 80)]
    content = content_of(format, [records])

    assert format.lines_of("f", content) == [f'"{record}"' for record in records]
    assert content == content_of(format, [[record] for record in records])
    assert len(content) < BLOCK_BYTES
    with pytest.raises(StorageError, match=f"^f is no whole {compression} file"):
        format.lines_of("f", content[:-3])


def test_unknown_compressions_are_refused() -> None:
    """Uncompressed text needs no bulk format."""
    with pytest.raises(ConfigurationError, match="give the sink the row format"):
        BulkTextFormat(JsonLinesRowFormat(), "none")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="compression is 'lzo'"):
        ParquetFormat(SCHEMA, compression="lzo")


@pytest.mark.parametrize("row_format", ["json", JsonLinesRowFormat, BulkTextFormat(JsonLinesRowFormat()), None])
def test_only_row_formats_are_compressed(row_format: Any) -> None:
    """A text has a method ``encode`` too, and so does a bulk format for reading back."""
    with pytest.raises(ConfigurationError, match=r"^row_format is .*JsonLinesRowFormat"):
        BulkTextFormat(row_format)


def test_a_sink_of_compressed_rows() -> None:
    """Every checkpoint closes the parts; readers find whole files, and bad records are named."""
    fs, format = MemoryFileSystem(), BulkTextFormat(CsvRowFormat())
    spec = FileSink("rows", format=format, suffix=".csv.gz", bucket=lambda row: str(row[0]))
    harness = Harness(spec.create_operator(), fs=fs)
    harness.process([(1, "a"), (2, "b"), (1, "c")])
    harness.snapshot(1)
    harness.process([(1, "d")])
    harness.complete(1)
    assert read_committed(fs, "/out/rows", format) == {"1": ["1,a", "1,c"], "2": ["2,b"]}
    with pytest.raises(UserFunctionError, match=r"^bulk format of operator 'op' raised"):
        harness.process([(1, "a"), 7])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.text(), st.floats()), max_size=30), st.data()
)
def test_parquet_comes_back(records: list[Any], data: st.DataObject) -> None:
    """Values, nulls and row groups; and the bytes are the same whatever the batches."""
    format = ParquetFormat(SCHEMA, row_group_rows=7)
    cut = data.draw(st.integers(0, len(records)))
    content = content_of(format, [records])

    assert content == content_of(format, [part for part in (records[:cut], records[cut:]) if part])
    lines = format.lines_of("f", content)
    assert lines == [format.encode(record) for record in records]
    assert lines == [format.encode(dict(zip(SCHEMA, record, strict=True))) for record in records]
    with pytest.raises(StorageError, match=r"^f is no whole Parquet file"):
        format.lines_of("f", content[:-1])


def test_pages_of_parquet_do_not_show_where_batches_ended() -> None:
    """A row group is written from one piece: otherwise a page may end where a batch did, and the bytes depend on it."""
    format, count = ParquetFormat({"name": str}), 1 << 16
    names = [f"n{number * 2654435761 % 2**40}" for number in range(count)]

    whole = content_of(format, [[(name,) for name in names]])
    assert whole == content_of(format, [[(name,) for name in names[at : at + 1_000]] for at in range(0, count, 1_000)])


def test_stretches_of_a_large_batch_are_no_batches() -> None:
    """Records are encoded some thousands at a time; all arrive, in order, and a bad one is reported with its place."""
    format = ParquetFormat({"id": int})
    records: list[Any] = [{"id": number} if number % 2 else (number,) for number in range(10_000)]
    assert format.encode_batch(Batch(records)).column(0).to_pylist() == list(range(10_000))

    records[9_000] = {"id": "nine thousand"}
    with pytest.raises(RecordError, match="'nine thousand' is of type str") as caught:
        format.encode_batch(Batch(records))
    assert (caught.value.position, caught.value.record) == (9_000, {"id": "nine thousand"})


def test_a_parquet_sink() -> None:
    """Rows of buckets, committed file by file; columns as well as rows; a policy may close parts by size."""
    fs, format = MemoryFileSystem(), ParquetFormat(SCHEMA, row_group_rows=2)
    policy = TableRollingPolicy(roll_on_checkpoint=True, max_part_size_bytes=10)
    spec = FileSink("rows", format=format, bucket=lambda row: f"odd={row['id'] % 2}", rolling_policy=policy)
    harness = Harness(spec.create_operator(), fs=fs)
    harness.process(ROWS[:7])
    columns, count = checked_columns({name: [row[name] for row in ROWS[7:]] for name in reversed(SCHEMA)})
    harness.operator.process_batch(ColumnBatch(columns, count))
    assert read_committed_parquet(fs, "/out/rows") == {}
    harness.checkpoint(1)

    assert read_committed_parquet(fs, "/out/rows") == {"odd=0": ROWS[::2], "odd=1": ROWS[1::2]}
    assert read_committed(fs, "/out/rows", format)["odd=0"] == sorted(map(format.encode, ROWS[::2]))
    assert len(list(fs.walk_files("/out/rows/odd=0"))) == 3


def test_types_of_a_schema() -> None:
    """Python's types, Arrow's names and Arrow's types; nested ones are left to Arrow."""
    schema = {"day": datetime.date, "at": datetime.datetime, "small": "int8", "tags": pa.list_(pa.string())}
    schema["raw"] = bytes
    format = ParquetFormat(schema)
    record = (datetime.date(2013, 1, 2), datetime.datetime(2013, 1, 2, 3), 7, ["a", "b"], b"\x00\xff")
    [row] = pa.parquet.read_table(pa.BufferReader(content_of(format, [[record]]))).to_pylist()

    assert tuple(row.values()) == record
    assert format.encode(record) == (
        '{"day":"2013-01-02","at":"2013-01-02T03:00:00","small":7,"tags":["a","b"],"raw":"00ff"}'
    )
    assert ParquetFormat(pa.schema([("x", pa.int32())])).schema.names == ["x"]


@pytest.mark.parametrize("schema", [{}, {"x": complex}, {"x": "no such type"}, {1: int}, ["x"], pa.schema([])])
def test_bad_schemas_are_refused(schema: Any) -> None:
    """They are refused where the format is made."""
    with pytest.raises(ConfigurationError):
        ParquetFormat(schema)
    with pytest.raises(ConfigurationError, match="row_group_rows is 0"):
        ParquetFormat(SCHEMA, row_group_rows=0)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"id": "7", "name": "", "share": 0.0}, "column 'id' is int64, and '7' is of type str"),
        ({"id": 2**63, "name": "", "share": 0.0}, "column 'id' is int64, and 9223372036854775808 is of type int"),
        ({"id": True, "name": "", "share": 0.0}, "column 'id' is int64, and True is of type bool"),
        ({"id": 1, "name": "", "share": None}, "column 'share' is double not null, and None is of type NoneType"),
        ({"id": 1, "name": "\ud800", "share": 0.0}, "column 'name' is string, and '\\ud800' is of type str"),
        ({"id": 1, "share": 0.0}, "there is no column 'name', which the schema has"),
        ({"id": 1, "name": "", "share": 0.0, "x": 1}, "there is a column 'x', which the schema has not"),
        ({"id": 1, "name": "", "shore": 0.0}, "there is no column 'share', which the schema has"),
        ((1, ""), "2 fields instead of 3"),
        ("abc", "a Parquet record is a dict, a tuple or a list, not str"),
    ],
)
def test_a_record_that_does_not_fit_is_named(record: Any, why: str) -> None:
    """The error names column, type and value, and no record of the batch is written."""
    share = pa.field("share", pa.float64(), nullable=False)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), share])
    fs = MemoryFileSystem()
    harness = Harness(FileSink("rows", format=ParquetFormat(schema)).create_operator(), fs=fs)

    with pytest.raises(UserFunctionError) as caught:
        harness.process([ROWS[0], ROWS[1], record, ROWS[2]])
    assert caught.value.record == record
    assert f"raised SchemaMismatchError: {why}" in str(caught.value)
    assert list(fs.walk_files("/out")) == []


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": [1], "name": ["a"]}, "there is no column 'share'"),
        ({"id": [True], "name": ["a"], "share": [1.0]}, "column 'id' is int64, and True is of type bool"),
        ({"id": [1.0], "name": ["a"], "share": [1.0]}, "column 'id' is int64, and 1.0 is of type float"),
        ({"id": [1], "name": [b"a"], "share": [1.0]}, "column 'name' is string, and b'a' is of type bytes"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: dict[str, list[Any]], why: str) -> None:
    """Arrow would have converted some of their values."""
    batch = ColumnBatch(*checked_columns(columns))

    with pytest.raises(Exception, match=why):
        ParquetFormat(SCHEMA).encode_batch(batch)


def test_an_abandoned_writer_writes_nothing() -> None:
    """It writes nothing whenever it is collected: pyarrow's own would add a footer to a file of the next attempt."""
    format = ParquetFormat(SCHEMA, row_group_rows=2)
    fs = MemoryFileSystem()
    harness = Harness(FileSink("rows", format=format).create_operator(), fs=fs)
    harness.process(ROWS[:5])
    before = [fs.read_bytes(path) for path in fs.walk_files("/out")]
    harness.operator.abandon()
    del harness
    gc.collect()
    written: list[bytes] = []
    writer = format.open_writer(written.append)
    writer.add(format.encode_batch(Batch(ROWS)), 0, 2)
    count = len(written)
    del writer
    gc.collect()

    assert [fs.read_bytes(path) for path in fs.walk_files("/out")] == before
    assert count == len(written) > 0


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes where the format is made, not in the middle of a run."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(MissingDependencyError, match=r"pip install 'weirstream\[parquet\]'"):
        ParquetFormat(SCHEMA)
