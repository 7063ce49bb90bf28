"""Tables with all types in all formats: rows come back, misfits and damage are told, or are left out on request."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.errors import (
    ConfigurationError,
    JobFailedError,
    MalformedRecordError,
    StorageError,
    UserFunctionError,
)
from engine.graph.job import Job
from engine.runtime.execution import JOB_MANAGER
from operators.files.formats import CorruptFileError
from operators.files.reading.stream_formats import MalformedContentError
from operators.sources import CollectionSource, Pause
from operators.table.connectors.connector import _resolved, table_sink, table_source
from operators.table.connectors.factories import formats
from state_backends.files import LocalFileSystem, MemoryFileSystem
from tests.operators.files.reading.test_file_source import file_system
from tests.operators.harness import Harness
from tests.operators.sources.test_in_memory import SourceWorld, drain
from tests.operators.table.connectors.test_connector import ordered, read, table, write
from tests.runtime.support import US, every, execution

UTC = datetime.UTC
SCHEMA = {
    "id": "INT", "tiny": "TINYINT", "small": "SMALLINT", "share": "FLOAT", "price": "DECIMAL(38, 6)", "data": "BYTES",
    "day": "DATE", "at": "TIMESTAMP(3)", "seen": "TIMESTAMP_LTZ(6)", "time": "TIME(3)", "counts": "ARRAY<INT>",
    "prices": "MAP<STRING, DECIMAL(4, 1)>", "inner": "ROW<x INT, days ARRAY<DATE>>",
}  # fmt: skip
FORMATS = ("json", "csv", "parquet", "avro", "orc")


def _row(n: int) -> dict[str, Any]:
    return {
        "id": n, "tiny": -n, "small": n * 100, "share": n / 4,
        "price": decimal.Decimal(f"{n}2345678901234567890123456789.000001"),
        "data": bytes([n, 10, 255]), "day": datetime.date(1950 + n, 1, 31),
        "at": datetime.datetime(1950 + n, 1, 2, 3, 4, 5, 6000),
        "seen": datetime.datetime(1950 + n, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "time": datetime.time(n % 24, 17, 0, 1000),
        "counts": [n, None], "prices": {"é,\"": decimal.Decimal("1.5"), "b": None},
        "inner": {"x": n, "days": [datetime.date(2013, 1, 1 + n % 28)]},
    }  # fmt: skip


ROWS = [dict.fromkeys(SCHEMA) | {"id": n} if n % 7 == 0 else _row(n) for n in range(40)]


def _of(format: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """ORC has no time of day."""
    schema = {name: kind for name, kind in SCHEMA.items() if format != "orc" or name != "time"}
    return schema, [{name: row[name] for name in schema} for row in ROWS]


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_holds_each_type(format: str) -> None:
    """Values come back with their types, nulls as nulls."""
    schema, rows = _of(format)
    fs = MemoryFileSystem()
    write(table_sink(table(format=format), schema), rows, fs)
    assert ordered(read(table(format=format), schema, fs)) == ordered(rows)


@pytest.mark.parametrize("format", FORMATS)
def test_typed_rows_are_written_once_whoever_dies(format: str) -> None:
    """They go into a partitioned table whose small files are compacted."""
    schema, rows = _of(format)
    options = table(format=format) | {"partition.keys": "small", "auto-compaction": "true"}
    rows = [row | {"small": row["id"] % 2} for row in rows]
    fs = MemoryFileSystem()
    job = Job("write", parallelism=2)
    source = job.source(CollectionSource([*rows[:20], Pause(1), *rows[20:]]), name="rows").rebalance()
    source.sink(table_sink(options, schema), name="table", uid="table")
    kills = [("rows", 21 * US), (JOB_MANAGER, 1022 * US)]
    settings = {"checkpoint_interval": every(ns=9 * US), "restart": FixedDelayRestart(None, 2 * US)}
    execution(job, file_system=fs, kills=kills, **settings).run().raise_on_failure()
    assert ordered(read(options, schema, fs)) == ordered(rows)


PATH_TYPES: dict[str, tuple[str, Any]] = {
    "tiny": ("TINYINT", -5), "small": ("SMALLINT", -5), "big": ("BIGINT", 2**63 - 1), "flag": ("BOOLEAN", True),
    "x": ("DOUBLE", 1e300), "tail": ("DECIMAL(38, 38)", decimal.Decimal("1E-38")), "name": ("STRING", "../a=b%41"),
    "price": ("DECIMAL(5, 2)", decimal.Decimal("1.50")),
    "day": ("DATE", datetime.date(2013, 1, 1)),
    "time": ("TIME", datetime.time(5, 17)), "at": ("TIMESTAMP(3)", datetime.datetime(2013, 1, 1, 5, 0, 0, 1000)),
    "seen": ("TIMESTAMP_LTZ", datetime.datetime(2013, 1, 1, 5, tzinfo=UTC)), "share": ("FLOAT", 0.25),
}  # fmt: skip


@pytest.mark.parametrize("column", PATH_TYPES)
def test_partition_values_have_types_too(column: str) -> None:
    """Out of the path comes what went into it, also null."""
    kind, value = PATH_TYPES[column]
    schema, options = {"n": "INT", column: kind}, table() | {"partition.keys": column}
    rows = [{"n": 1, column: value}, {"n": 2, column: None}]
    fs = MemoryFileSystem()
    write(table_sink(options, schema), rows, fs)
    assert ordered(read(options, schema, fs)) == ordered(rows)


EAST = datetime.timezone(datetime.timedelta(hours=2))
SAME: list[tuple[str, list[Any], str]] = [
    ("DECIMAL(6, 2)", [1, decimal.Decimal("1.0"), decimal.Decimal("1.00")], "1.00"),
    ("DECIMAL(6, 2)", [decimal.Decimal("-0"), 0], "0.00"),
    ("FLOAT", [0.1, 0.10000000149011612], "0.1"),
    ("DOUBLE", [1, 1.0], "1.0"),
    ("BOOLEAN", [True], "true"),
    ("TIMESTAMP(3)", [datetime.datetime(2013, 1, 1, 5, 0, 0, 1000)], "2013-01-01 05%3A00%3A00.001"),
    (
        "TIMESTAMP_LTZ", [datetime.datetime(2013, 1, 1, 2, tzinfo=EAST), datetime.datetime(2013, 1, 1, tzinfo=UTC)],
        "2013-01-01 00%3A00%3A00Z",
    ),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["streaming", "batch"])
@pytest.mark.parametrize(("kind", "values", "name"), SAME)
def test_equal_values_are_one_partition(mode: str, kind: str, values: list[Any], name: str) -> None:
    """Its directory is called after the type, as in a text of CSV; one subtask gets all of it on request."""
    options = table() | {
        "partition.keys": "p", "execution.runtime-mode": mode, "sink.shuffle-by-partition.enable": "true"
    }  # fmt: skip
    fs = MemoryFileSystem()
    write(table_sink(options, {"n": "INT", "p": kind}), [{"n": 1, "p": value} for value in values], fs)
    parts = [path for path in fs.walk_files("/t") if "/part" in path]
    assert [path.rpartition("/")[0] for path in parts] == [f"/t/p={name}"]


@pytest.mark.parametrize("mode", ["streaming", "batch"])
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("BIGINT", "7", "partition column 'p': '7' is no BIGINT"),
        ("SMALLINT", 2**15, "partition column 'p': 32768 is no SMALLINT: it does not fit 16 bits"),
        ("DECIMAL(3, 1)", decimal.Decimal("1.25"), "more than 1 digit after the point"),
        ("STRING", "none", "is 'none', which stands for null\n.*'partition.default-name'"),
    ],
)
def test_a_partition_value_outside_its_type_is_refused(mode: str, kind: str, value: Any, message: str) -> None:
    """Also where its text would be read as another value; no directory is made."""
    options = table() | {"partition.keys": "p", "partition.default-name": "none", "execution.runtime-mode": mode}
    fs = MemoryFileSystem()
    with pytest.raises(JobFailedError, match=f"(?s){message}"):
        write(table_sink(options, {"n": "INT", "p": kind}), [{"n": 1, "p": value}], fs, restart=NoRestart())
    assert [path for path in fs.walk_files("/t") if "p=" in path] == []


@pytest.mark.parametrize("format", FORMATS)
def test_values_at_the_limits_of_their_types_come_back(format: str) -> None:
    """No digit is lost anywhere; JSON alone has no infinity."""
    schema = {
        "big": "BIGINT", "whole": "DECIMAL(38, 0)", "tail": "DECIMAL(38, 38)", "first": "TIMESTAMP", "last": "DATE",
        "least": "DOUBLE", "most": "DOUBLE", "name": "STRING", "ends": "ARRAY<DOUBLE>",
    }  # fmt: skip
    row = {
        "big": -(2**63), "whole": decimal.Decimal("9" * 38), "tail": decimal.Decimal(f"-0.{'1' * 38}"),
        "first": datetime.datetime(1678, 1, 1) if format == "orc" else datetime.datetime.min, "last": datetime.date.max,
        "least": 5e-324, "most": 1.7976931348623157e308, "name": "a\0\x85\u2028\x0b" + "\U0001f30a" * 200_000,
        "ends": [0.5] if format == "json" else [float("inf"), float("-inf")],
    }  # fmt: skip
    fs = MemoryFileSystem()
    write(table_sink(table(format=format), schema), [row], fs)
    assert read(table(format=format), schema, fs) == [row]


@pytest.mark.parametrize(("format", "content"), [("json", '{"x":1e999}\n'), ("csv", "1e999\n")])
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "ARRAY<DOUBLE>"])
def test_a_number_that_is_too_large_does_not_become_infinite(format: str, content: str, kind: str) -> None:
    """It is malformed, like one that is too large for an INT."""
    text = content.replace("1e999", "[1e999]") if "ARRAY" in kind else content
    place = SourceWorld(file_system({"/t/a": text.encode()}))
    with pytest.raises(MalformedRecordError, match=r"does not fit (64|32) bits"):
        drain(table_source(table(format=format), {"x": kind}).open_split("/t/a", None, place))


def test_blank_texts_in_the_one_column_of_a_csv_table_are_rows() -> None:
    """A line of blanks is none for the source, so the sink puts quotes around them."""
    rows = [{"s": text} for text in ("a", " ", "\t \t", "\x0b")]
    fs = MemoryFileSystem()
    write(table_sink(table(format="csv"), {"s": "STRING"}), rows, fs)
    assert ordered(read(table(format="csv"), {"s": "STRING"}, fs)) == ordered(rows)


def test_columns_and_fields_may_have_names_that_meet() -> None:
    """The records in an Avro schema must have names of their own."""
    schema = {"a_b": "ROW<x INT>", "a": "ROW<b ROW<y INT>, b_0 ROW<z INT>>"}
    rows = [{"a_b": {"x": 1}, "a": {"b": {"y": 2}, "b_0": {"z": 3}}}]
    fs = MemoryFileSystem()
    write(table_sink(table(format="avro"), schema), rows, fs)
    assert read(table(format="avro"), schema, fs) == rows


@pytest.mark.parametrize("format", ["avro", "orc", "parquet"])
def test_a_file_that_is_cut_off_is_an_error_also_where_blocks_may_be_left_out(format: str) -> None:
    """How many rows are missing is not known then."""
    fs, schema, rows = MemoryFileSystem(), {"n": "STRING"}, [{"n": f"{n:090}"} for n in range(900)]
    write(table_sink(table(format=format), schema), rows, fs, checkpoint_interval=None)
    [path, *_] = fs.walk_files("/t")
    content = fs.read_bytes(path)
    more = {} if format == "parquet" else {f"{format}.on-corrupt": "skip"}
    for size in (0, len(content) // 2, len(content) - 1):
        place = SourceWorld(file_system({path: content[:size]}))
        with pytest.raises(CorruptFileError, match=f"{path}: not a whole (Avro|ORC|Parquet) file") as told:
            drain(table_source(table(format=format) | more, schema).open_split(path, None, place))
        if format == "avro" and size:
            assert "it ends in the middle of the block at byte " in str(told.value)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("INT", 2**31, "column 'c': 2147483648 is no INT: it does not fit 32 bits"),
        ("DECIMAL(5, 2)", decimal.Decimal("1.555"), "column 'c': .* more than 2 digits after the point"),
        ("TIMESTAMP(3)", datetime.datetime(2013, 1, 1, 0, 0, 0, 1), "column 'c': .* more than 3 digits"),
        ("ARRAY<DATE>", ["2013-01-01"], "column 'c': '2013-01-01' is no DATE"),
    ],
)
def test_a_misfit_is_refused_by_each_sink(format: str, kind: str, value: Any, message: str) -> None:
    """Nothing of it is written, and nothing is rounded."""
    with pytest.raises(UserFunctionError, match=message):
        Harness(table_sink(table(format=format), {"c": kind}).create_operator()).process([{"c": value}])


def test_orc_says_what_it_cannot_hold() -> None:
    """Times of day, timestamps inside other types, and years that pyarrow would read as others."""
    for kind, message in (("TIME", "ORC has no time of day"), ("ARRAY<TIMESTAMP>", "only as columns of their own")):
        with pytest.raises(ConfigurationError, match=message):
            table_sink(table(format="orc"), {"c": kind})
    sink = table_sink(table(format="orc"), {"c": "TIMESTAMP"})
    with pytest.raises(UserFunctionError, match="format 'orc' holds the years 1678 to 2261"):
        Harness(sink.create_operator()).process([{"c": datetime.datetime(1500, 1, 1)}])


@pytest.mark.parametrize("format", ["avro", "orc", "parquet"])
def test_a_damaged_file_is_told_or_left_out(format: str) -> None:
    """With the file, and its block, stripe or row group; blocks and stripes can be left out and counted."""
    rows, schema, fs = [{"n": f"{n:060}"} for n in range(400)], {"n": "STRING"}, MemoryFileSystem()
    options = table(format=format) | (
        {"avro.codec": "deflate"} if format == "avro" else {f"{format}.compression": "none"}
    )
    write(table_sink(options, schema), rows, fs)
    [path, *_] = fs.walk_files("/t")
    content = bytearray(fs.read_bytes(path))
    damaged = slice(-40, -20) if format == "avro" else slice(8, len(content) - 800)
    content[damaged] = b"\xff" * len(content[damaged])
    place = SourceWorld(file_system({path: bytes(content)}))
    with pytest.raises(CorruptFileError, match=path):
        drain(table_source(options, schema).open_split(path, None, place))
    if format != "parquet":
        skipping = table_source(options | {f"{format}.on-corrupt": "skip"}, schema)
        assert len(drain(skipping.open_split(path, None, place))) < 200
        assert sum(place.counters.values()) >= 1


@pytest.mark.parametrize("format", ["avro", "orc", "parquet"])
def test_a_file_of_other_types_is_told(format: str) -> None:
    """It is no damage, so it is not left out."""
    fs = MemoryFileSystem()
    write(table_sink(table(format=format), {"n": "INT"}), [{"n": 300}], fs)
    [path] = fs.walk_files("/t")
    more = {} if format == "parquet" else {f"{format}.on-corrupt": "skip"}
    source = table_source(table(format=format) | more, {"n": "TINYINT"})
    with pytest.raises(CorruptFileError, match="column 'n': 300 is no TINYINT: it does not fit 8 bits"):
        drain(source.open_split(path, None, SourceWorld(fs)))


@pytest.mark.parametrize(("format", "content"), [("json", b'{"n":"1"}\n{"n":1}\n{"n":300}\n'), ("csv", b"x\n1\n300\n")])
def test_parse_errors_are_left_out_and_counted(format: str, content: bytes) -> None:
    """Only on request; a contradiction with source.on-malformed is refused."""
    schema, options = {"n": "TINYINT"}, table(format=format)
    place = SourceWorld(file_system({"/t/a": content}))
    with pytest.raises(MalformedRecordError, match="/t/a:1: column 'n'"):
        drain(table_source(options, schema).open_split("/t/a", None, place))
    lenient = options | {f"{format}.ignore-parse-errors": "true"}
    assert drain(table_source(lenient, schema).open_split("/t/a", None, place)) == [{"n": 1}]
    assert place.counters == {"numRecordsMalformed": 2}
    with pytest.raises(ConfigurationError, match="contradict each other"):
        table_source(lenient | {"source.on-malformed": "side_output"}, schema)


def test_json_times_are_in_sql_or_iso_and_numbers_keep_their_digits() -> None:
    """Each standard refuses the other's texts. A DECIMAL may be a number, which is not read as a double."""
    schema = {"at": "TIMESTAMP(3)", "p": "DECIMAL(30, 20)", "x": "DOUBLE"}
    iso = table() | {"json.timestamp-format.standard": "ISO-8601"}
    fs = MemoryFileSystem()
    row = {
        "at": datetime.datetime(2013, 1, 1, 5),
        "p": decimal.Decimal("1.5").quantize(decimal.Decimal("1e-20")),
        "x": 0.5,
    }
    write(table_sink(iso, schema), [row], fs)
    [path] = fs.walk_files("/t")
    assert fs.read_bytes(path) == b'{"at":"2013-01-01T05:00:00","p":"1.50000000000000000000","x":0.5}\n'
    with pytest.raises(MalformedRecordError, match="is written as 2013-01-31 05:17:00"):
        drain(table_source(table(), schema).open_split(path, None, SourceWorld(fs)))
    place = SourceWorld(file_system({"/t/a": b'{"p":0.12345678901234567891,"x":0.1}\n'}))
    [found] = drain(table_source(iso, schema).open_split("/t/a", None, place))
    assert (found["p"], found["x"]) == (decimal.Decimal("0.12345678901234567891"), 0.1)


def test_csv_signs_are_the_same_on_both_sides() -> None:
    """Another quote, another delimiter, another null."""
    schema, fs = {"a": "STRING", "n": "INT"}, MemoryFileSystem()
    options = table(format="csv") | {
        "csv.quote-character": "'", "csv.field-delimiter": ";", "csv.null-literal": "NULL"
    }  # fmt: skip
    rows = [{"a": 'it\'s; "x"', "n": None}, {"a": "", "n": 1}]
    write(table_sink(options, schema), rows, fs)
    assert ordered(read(options, schema, fs)) == ordered(rows)
    assert b"'it''s; \"x\"';NULL\n" in b"".join(map(fs.read_bytes, fs.walk_files("/t")))


# --- raw --------------------------------------------------------------------------------------------------

RAW: list[tuple[str, list[Any], dict[str, str], bytes]] = [
    ("SMALLINT", [1, -2], {}, b"\0\1\xff\xfe"),
    ("INT", [1], {"raw.endianness": "little-endian"}, b"\1\0\0\0"),
    ("DOUBLE", [0.5], {}, b"\x3f\xe0\0\0\0\0\0\0"),
    ("BOOLEAN", [True, False], {}, b"\1\0"),
    ("STRING", ["é", ""], {"raw.charset": "latin-1"}, b"\xe9\n\n"),
    ("BYTES", [b"\xff\0", b""], {}, b"\xff\0\n\n"),
]


@pytest.mark.parametrize(("kind", "values", "more", "content"), RAW)
def test_a_raw_file_is_its_values(kind: str, values: list[Any], more: dict[str, str], content: bytes) -> None:
    """Byte for byte, and back."""
    options, schema, fs = table(format="raw") | more, {"v": kind}, MemoryFileSystem()
    rows = [{"v": value} for value in values]
    sink = table_sink(options, schema)
    write(sink, rows, fs)
    assert sorted(b"".join(map(fs.read_bytes, fs.walk_files("/t")))) == sorted(content)
    assert ordered(read(options, schema, fs)) == ordered(rows)
    assert sorted(line for lines in sink.read_output(fs, "/t").values() for line in lines) == sorted(
        map(sink.format.encode, rows)
    )


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("INT", None, "format 'raw' has no null"), ("INT", "1", "'1' is no INT"),
        ("STRING", "a\nb", "has a line break"), ("BYTES", b"a\rb", "has a line break"),
        ("STRING", "\ud800", "column 'v': .*surrogates not allowed"),
    ],
)  # fmt: skip
def test_a_raw_file_has_values_that_can_be_read_back(kind: str, value: Any, message: str) -> None:
    """Others are refused; so is a schema with more columns, or with types without bytes of their own."""
    with pytest.raises(UserFunctionError, match=message):
        Harness(table_sink(table(format="raw"), {"v": kind}).create_operator()).process([{"v": value}])
    for schema in ({"v": "INT", "w": "INT"}, {"v": "DATE"}):
        with pytest.raises(ConfigurationError, match="format 'raw' is for one column of type"):
            table_source(table(format="raw"), schema)


@pytest.mark.parametrize(("kind", "content"), [("INT", b"\0\0\0\1\0"), ("STRING", b"a\nb")])
def test_a_raw_file_that_is_torn_is_told(kind: str, content: bytes) -> None:
    """To those who look at the rows of a sink, and to a source of numbers."""
    sink = table_sink(table(format="raw"), {"v": kind})
    with pytest.raises(StorageError, match="p ends in the middle of a value"):
        sink.format.lines_of("p", content)
    if kind == "INT":
        place = SourceWorld(file_system({"/t/a": content}))
        with pytest.raises(MalformedContentError, match="the file ends after 1 of the 4 bytes of a record"):
            drain(table_source(table(format="raw"), {"v": kind}).open_split("/t/a", None, place))


def test_a_message_is_one_row_and_nothing_else() -> None:
    """What is too much or too little is no row of the table."""
    for format, more in (("avro", b"\2"), ("raw", b"\2"), ("json", b"\n{}"), ("csv", b"\n2")):
        factory: Any = formats.find(format)
        made = factory.message_format(_resolved(table(format=format), {"v": "INT"})[2])
        message = made.encode({"v": 1})
        assert made.decode(message) == {"v": 1}
        for wrong in (message + more, message[:-1], b""):
            with pytest.raises(ValueError, match=r"\w"):
                made.decode(wrong)


# --- where rows go ----------------------------------------------------------------------------------------


def test_a_partition_is_written_by_one_subtask_on_request() -> None:
    """Otherwise each subtask writes a part of each partition."""
    rows = [{"n": n, "day": f"d{n // 2 % 2}"} for n in range(40)]
    counts = []
    for shuffled in ("false", "true"):
        fs = MemoryFileSystem()
        options = table() | {
            "partition.keys": "day",
            "sink.shuffle-by-partition.enable": shuffled,
            "sink.parallelism": 3,
        }
        job = Job("write", parallelism=2)
        sink = table_sink(options, {"n": "INT", "day": "STRING"})
        job.source(CollectionSource(rows, splits=2), name="rows").rebalance().sink(sink, name="table")
        execution(job, file_system=fs).run().raise_on_failure()
        parts = [path.rpartition("/")[2].split("-")[1] for path in fs.walk_files("/t/day=d0")]
        counts.append(len(set(parts)))
    assert counts == [3, 1]


def test_compactors_are_as_many_as_they_are_said_to_be() -> None:
    """Their number is not that of the writers."""
    options = table() | {
        "partition.keys": "day",
        "auto-compaction": True,
        "compaction.parallelism": 1,
        "sink.parallelism": 2,
    }
    job = Job("write", parallelism=3)
    rows = job.source(CollectionSource([{"n": 1, "day": "d"}]), name="rows").rebalance()
    rows.sink(table_sink(options, {"n": "INT", "day": "STRING"}), name="table")
    graph = job.graph
    found = {graph.name_of(at): graph.node(at).parallelism for at in graph.topological_order()}
    assert found == {"rows": 3, "table": 2, "table-compact-coordinator": 1, "table-compactor": 1}


def test_files_are_chosen_by_an_expression_for_their_paths() -> None:
    """An expression that chooses none is told with a path that it could have chosen."""
    fs = file_system({"/t/a.json": b'{"n":1}\n', "/t/b.txt": b"x"})
    options = table() | {"source.path.regex-pattern": r".*\.json"}
    assert read(options, {"n": "INT"}, fs) == [{"n": 1}]
    for pattern, message in (
        ("x", r"none of the 2 files at '/t' matches 'x'; the first is '/t/a"),
        ("(", "'source.path.regex-pattern' is no regular expression"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            table_source(options | {"source.path.regex-pattern": pattern}, {"n": "INT"}).splits(SourceWorld(fs))


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_partitions_are_entered_in_a_metastore_by_options(mode: str, tmp_path: Path) -> None:
    """The SQLite file and the table in it are made when the job starts; a second job adds to them."""
    options = {
        "connector": "filesystem", "path": "t", "format": "json", "partition.keys": "day",
        "execution.runtime-mode": mode,
        "sink.partition-commit.policy.kind": "metastore",
    }  # fmt: skip
    for n in range(2):
        job = Job("write")
        rows = job.source(CollectionSource([{"n": n, "day": f"d{n}"}]), name="rows")
        rows.sink(table_sink(options | {"path": f"t{n}", "metastore.table": "t"}, {"n": "INT", "day": "STRING"}))
        settings: dict[str, Any] = {"file_system": LocalFileSystem(), "output_dir": str(tmp_path)}
        execution(job, **settings).run().raise_on_failure()
    with sqlite3.connect(tmp_path / "metastore.sqlite") as connection:
        found = connection.execute('SELECT "table", spec FROM partitions ORDER BY spec').fetchall()
    assert found == [("t", '[["day", "d0"]]'), ("t", '[["day", "d1"]]')]
