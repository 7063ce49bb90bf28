"""Tables by options: refused options, rows that a sink writes and its source reads, power cuts, connectors by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.errors import ConfigurationError, MalformedRecordError, UserFunctionError
from engine.graph.job import Job
from engine.runtime.execution import JOB_MANAGER
from operators.basic import CollectedResults
from operators.files.sinks import FileSink, read_committed
from operators.sources import CollectionSource, Pause
from operators.table.connectors import factories
from operators.table.connectors.connector import (
    describe_options,
    register_connector,
    register_format,
    table_sink,
    table_source,
)
from operators.table.connectors.connector_options import ConfigOption, OptionError, Options
from operators.table.partitions.commit_policies import SuccessFilePolicy
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink
from operators.table.staging.staged_sink import StagedFileSink, StagingWriters
from state_backends.files import FileSystem, MemoryFileSystem
from tests.operators.files.reading.test_file_source import file_system
from tests.operators.harness import Harness
from tests.operators.sources.test_in_memory import SourceWorld, drain
from tests.runtime.support import US, every, execution

SCHEMA = {"name": "STRING", "n": "BIGINT", "x": "DOUBLE", "ok": "BOOLEAN", "day": "STRING", "hour": "BIGINT"}
ROWS = [
    {
        "name": None if number % 5 == 0 else f'n"{number}, é',
        "n": number if number % 3 else None,
        "x": number / 4,
        "ok": number % 2 == 0,
        "day": None if number == 7 else f"2013-01-0{1 + number % 2}",
        "hour": number // 10,
    }
    for number in range(40)
]


def table(format: str = "json") -> dict[str, Any]:
    return {"connector": "filesystem", "path": "/t", "format": format}


PARTITIONED = {"partition.keys": "day;hour"}


def ordered(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def write(sink: Any, rows: Sequence[Any], fs: FileSystem, **settings: Any) -> None:
    job = Job("write", parallelism=2)
    job.source(CollectionSource(rows, splits=2), name="rows").sink(sink, name="table", uid="table")
    settings = {"checkpoint_interval": every(ns=9 * US), "restart": FixedDelayRestart(None, 2 * US), **settings}
    execution(job, file_system=fs, **settings).run().raise_on_failure()


def read(options: dict[str, Any], schema: dict[str, str], fs: FileSystem) -> list[Any]:
    results = CollectedResults()
    job = Job("read", parallelism=2)
    job.source(table_source(options, schema), name="table").collect(results, name="out")
    execution(job, file_system=fs).run().raise_on_failure()
    return results.records


# --- there and back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [{}, PARTITIONED])
@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_source_reads_what_the_sink_has_written(format: str, partitions: dict[str, str]) -> None:
    """Every value and null of every type, with partition columns typed by the schema, in the order of the schema."""
    options = table(format=format) | partitions
    fs = MemoryFileSystem()
    rows = [row | {"day": row["day"] or ""} for row in ROWS] if format == "csv" and not partitions else ROWS
    write(table_sink(options, SCHEMA), rows, fs)
    found = read(options, SCHEMA, fs)

    expected = [row | {"day": row["day"] or None} for row in ROWS]
    assert ordered(found) == ordered(expected)
    assert all(list(row) == list(SCHEMA) for row in found)
    if partitions:
        assert fs.exists("/t/day=2013-01-01/hour=0")
        assert fs.exists("/t/day=__DEFAULT_PARTITION__/hour=0")


def test_text_is_one_column() -> None:
    """The columns of the path come beside it."""
    schema = {"line": "STRING", "day": "STRING"}
    options = table(format="text") | {"partition.keys": "day"}
    rows = [{"line": f"line {number}, \t", "day": f"d{number % 2}"} for number in range(10)]
    fs = MemoryFileSystem()
    write(table_sink(options, schema), rows, fs)

    assert ordered(read(options, schema, fs)) == ordered(rows)
    with pytest.raises(UserFunctionError, match="column 'line': format 'text' has no null"):
        Harness(table_sink(table(format="text"), {"line": "STRING"}).create_operator()).process([{"line": None}])
    with pytest.raises(ConfigurationError, match="format 'text' is for one STRING column"):
        table_source(table(format="text"), SCHEMA)


@pytest.mark.parametrize("at_us", range(3, 60, 9))
@pytest.mark.parametrize("format", ["json", "parquet"])
def test_rows_are_written_once_whoever_dies(format: str, at_us: int) -> None:
    """They go into a partitioned table, whose partitions are committed with success files."""
    options = table(format=format) | PARTITIONED | {"sink.partition-commit.policy.kind": "success-file"}
    fs = MemoryFileSystem()
    rows: list[Any] = [*ROWS[:20], Pause(1), *ROWS[20:]]
    job = Job("write", parallelism=2)
    job.source(CollectionSource(rows), name="rows").rebalance().sink(
        table_sink(options, SCHEMA), name="table", uid="table"
    )
    settings = {"checkpoint_interval": every(ns=9 * US), "restart": FixedDelayRestart(None, 2 * US)}
    kills = [("rows", at_us * US), (JOB_MANAGER, (at_us + 1000) * US)]
    execution(job, file_system=fs, kills=kills, **settings).run().raise_on_failure()

    assert ordered(read(options, SCHEMA, fs)) == ordered(ROWS)
    assert fs.exists("/t/day=2013-01-01/hour=0/_SUCCESS")


def test_a_batch_overwrites_the_partitions_that_it_writes() -> None:
    """Others stay as they are; without overwriting, rows are added."""
    schema = {"n": "BIGINT", "day": "STRING"}
    options = table() | {"partition.keys": "day", "execution.runtime-mode": "batch"}
    fs = MemoryFileSystem()
    first = [{"n": number, "day": f"d{number % 3}"} for number in range(9)]
    second = [{"n": 100, "day": "d0"}, {"n": 101, "day": "d1"}]
    write(table_sink(options, schema), first, fs)
    write(table_sink(options | {"sink.overwrite": "true"}, schema), second, fs)
    assert ordered(read(options, schema, fs)) == ordered([*second, *(row for row in first if row["day"] == "d2")])
    write(table_sink(options | {"sink.staging": "/staging"}, schema), [{"n": 200, "day": "d2"}], fs)
    assert len(read(options, schema, fs)) == 6


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_the_partition_of_rows_without_a_value_has_the_name_that_it_was_given(mode: str) -> None:
    """This holds however the table is written; its source reads the name as a null."""
    schema = {"n": "BIGINT", "day": "STRING"}
    options = table() | {"partition.keys": "day", "execution.runtime-mode": mode, "partition.default-name": "none"}
    fs = MemoryFileSystem()
    write(table_sink(options, schema), [{"n": 1, "day": None}, {"n": 2, "day": "d"}], fs)
    assert [name for name in fs.list_dir("/t") if not name.startswith(".")] == ["day=d", "day=none"]
    assert ordered(read(options, schema, fs)) == ordered([{"n": 1, "day": None}, {"n": 2, "day": "d"}])


def test_small_files_are_compacted() -> None:
    """They become one file per checkpoint and partition, which readers find instead."""
    options = table() | PARTITIONED | {"auto-compaction": True, "compaction.file-size": "1mb"}
    fs = MemoryFileSystem()
    write(table_sink(options, SCHEMA), ROWS, fs)

    assert ordered(read(options, SCHEMA, fs)) == ordered(ROWS)
    names = [path.rpartition("/")[2] for path in fs.walk_files("/t")]
    assert any(name.startswith("compacted-") for name in names)


def test_options_reach_what_they_are_about() -> None:
    """Each is seen in the sink or source that is made."""
    sink = table_sink(
        table() | {
            "sink.rolling-policy.file-size": "2 kb", "sink.rolling-policy.rollover-interval": "2 min",
            "sink.rolling-policy.inactivity-interval": "3 s", "sink.rolling-policy.check-interval": 5,
        },
        SCHEMA,
    )  # fmt: skip
    policy: Any = sink.rolling_policy
    assert isinstance(sink, FileSink)
    assert (policy.max_part_size_bytes, policy.rollover_interval_ms) == (2048, 120_000)
    assert policy.inactivity_interval_ms == 3000
    assert (sink.bucket_check_interval_ms, policy.rolls_on_every_checkpoint) == (5, False)
    assert table_sink(table(format="parquet"), SCHEMA).rolling_policy.rolls_on_every_checkpoint
    partitioned = table_sink(
        table() | PARTITIONED | {
            "sink.partition-commit.policy.kind": "success-file,custom", "sink.partition-commit.delay": "1 h",
            "sink.partition-commit.policy.class": "operators.table.partitions.commit_policies:SuccessFilePolicy",
            "sink.partition-commit.policy.class.parameters": "_OWN",
            "sink.partition-commit.trigger": "partition-time", "sink.partition-commit.success-file.name": "_DONE",
            "partition.time-extractor.timestamp-pattern": "$day $hour:00:00", "partition.default-name": "none",
        },
        SCHEMA,
    )  # fmt: skip
    assert isinstance(partitioned, PartitionedFileSink)
    assert partitioned.commit is not None
    assert [getattr(one, "name", None) for one in partitioned.commit.policies] == ["_DONE", "_OWN"]
    assert partitioned.commit.delay_ms == 3_600_000
    staged = table_sink(table() | {"execution.runtime-mode": "batch", "sink.staging": "/s"}, SCHEMA)
    assert isinstance(staged, StagedFileSink)
    assert (staged.staging, staged.overwrite) == ("/s", False)
    source = table_source(table() | {"source.monitor-interval": "5 s", "source.split-size": "1kb"}, SCHEMA)
    assert source.monitor_interval_ms == 5000


# --- malformed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "content", "line", "why"),
    [
        ("json", b'{"n":1,"x":1}\n{"n":"7"}\n', 2, "column 'n': '7' is no BIGINT"),
        ("json", b'{"n":true}\n', 1, "column 'n': True is no BIGINT"),
        ("json", b'{"n":-9223372036854775809}\n', 1, "column 'n': -9223372036854775809 is no BIGINT: it does not fit"),
        ("json", b'{"n":9223372036854775808}\n', 1, "column 'n': 9223372036854775808 is no BIGINT: it does not fit"),
        ("json", b'{"x":1e308}\n{"x":1' + b"0" * 400 + b"}\n", 2, "column 'x': 10000.* is no DOUBLE: it does not fit"),
        ("json", b'{"x":-1e400}\n', 1, "column 'x': -inf is no DOUBLE: it does not fit"),
        ("json", b'{"x":"a"}\n', 1, "column 'x': 'a' is no DOUBLE"),
        ("json", b"[1]\n", 1, r"\[1\] is no JSON object"),
        ("csv", b"1,2.5\n7.0,1\n", 2, "column 'n': '7.0' is no BIGINT"),
        ("csv", b"1_0,1\n", 1, "column 'n': '1_0' is no BIGINT"),
        ("csv", b"1, 2\n", 1, "column 'x': ' 2' is no DOUBLE"),
        ("csv", b"1\n", 1, "1 fields instead of 2"),
    ],
)
def test_a_value_of_another_type_is_malformed(format: str, content: bytes, line: int, why: str) -> None:
    """The error names file, line, column and value; it can be skipped or sent aside, as with any file."""
    schema = {"n": "BIGINT", "x": "DOUBLE"}
    place = SourceWorld(file_system({"/t/a": content}))
    with pytest.raises(MalformedRecordError, match=f"/t/a:{line}: {why}"):
        drain(table_source(table(format=format), schema).open_split("/t/a", None, place), 1)
    skipping = table_source(table(format=format) | {"source.on-malformed": "skip"}, schema)
    assert len(drain(skipping.open_split("/t/a", None, place))) == line - 1
    assert place.counters == {"numRecordsMalformed": 1}


def test_json_fields_may_be_missing_unless_they_must_not() -> None:
    """A missing field is null, a field that is not a column is left out, a whole number is a DOUBLE."""
    place = SourceWorld(file_system({"/t/a": b'{"x":1,"z":[]}\n'}))
    schema = {"n": "BIGINT", "x": "DOUBLE"}
    [row] = drain(table_source(table(), schema).open_split("/t/a", None, place))
    assert (row, type(row["x"])) == ({"n": None, "x": 1.0}, float)
    strict = table_source(table() | {"json.fail-on-missing-field": "true"}, schema)
    with pytest.raises(MalformedRecordError, match="column 'n': the object has no such field; it has x, z"):
        drain(strict.open_split("/t/a", None, place))


def test_csv_may_have_a_header_and_other_signs() -> None:
    """Columns are found by their names then."""
    place = SourceWorld(file_system({"/t/a": b"x;other;n\n1.5;a;NULL\n"}))
    options = table(format="csv") | {"csv.header": "true", "csv.field-delimiter": ";", "csv.null-literal": "NULL"}
    source = table_source(options, {"n": "BIGINT", "x": "DOUBLE"})
    assert drain(source.open_split("/t/a", None, place)) == [{"n": None, "x": 1.5}]
    with pytest.raises(ConfigurationError, match=r"'csv\.header' is for reading only"):
        table_sink(options, {"n": "BIGINT", "x": "DOUBLE"})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/t/a", "/t/a is no file of a partition"),
        ("/t/day=1/a", "says nothing of 'hour'"),
        ("/t/day=1/hour=x/a", "partition column 'hour' is declared BIGINT, and the path says 'x'"),
    ],
)
def test_a_path_that_names_no_partition_is_refused(path: str, message: str) -> None:
    """The error names the path, the column and the text found there. The file is closed again."""
    files, opened = file_system({path: b"{}\n"}), list[Any]()
    open_read = files.open_read
    files.open_read = lambda path: opened.append(open_read(path)) or opened[-1]  # type: ignore[func-returns-value, method-assign]
    with pytest.raises(ConfigurationError, match=message):
        table_source(table() | PARTITIONED, SCHEMA).open_split(path, None, SourceWorld(files))
    assert [file.closed for file in opened] == [True]


@pytest.mark.parametrize(
    ("format", "row", "message"),
    [
        ("json", {"n": "1"}, "column 'n': '1' is no BIGINT"),
        ("csv", {"n": 1.5}, "column 'n': 1.5 is no BIGINT"),
        ("csv", {"n": 1 << 63}, "column 'n': 9223372036854775808 is no BIGINT: it does not fit 64 bits"),
        ("json", {"n": -(1 << 63) - 1}, "column 'n': -9223372036854775809 is no BIGINT: it does not fit 64 bits"),
        ("json", {"m": 1}, "a row of the table is a dict with n; this one has m"),
        ("json", (1,), "a row of the table is a dict with n; this one is tuple"),
        ("parquet", {"n": "1"}, "n"),
    ],
)
def test_a_row_that_does_not_fit_is_not_written(format: str, row: Any, message: str) -> None:
    """The error names the record and the column."""
    sink = table_sink(table(format=format), {"n": "BIGINT"})
    with pytest.raises(UserFunctionError, match=message):
        Harness(sink.create_operator()).process([row])


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_partition_that_the_source_could_not_read_is_not_written(mode: str) -> None:
    """The partition columns are in the paths, and must be of their types there as well."""
    sink = table_sink(table() | {"execution.runtime-mode": mode, "partition.keys": "hour"}, SCHEMA)
    created = sink.writer if mode == "streaming" else StagingWriters(sink)
    fs = MemoryFileSystem()
    row = {**ROWS[1], "hour": "x"}
    with pytest.raises(UserFunctionError, match="partition column 'hour': 'x' is no BIGINT"):
        Harness(created.create_operator(), fs=fs).process([ROWS[0], row])
    assert list(fs.walk_files("/out")) == []


# --- options ----------------------------------------------------------------------------------------------

COMMIT = {"sink.partition-commit.policy.kind": "success-file"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink.overwrite": "true"}, "'sink.overwrite' is for batches: a stream never has all rows"),
        ({"sink.staging": "/s"}, "'sink.staging' is for batches"),
        (
            {"execution.runtime-mode": "batch", "auto-compaction": "true", **PARTITIONED},
            "'auto-compaction' is for streams",
        ),
        ({"execution.runtime-mode": "batch", "sync-on-flush": "false"}, "'sync-on-flush' is for streams"),
        (
            {"execution.runtime-mode": "batch", **PARTITIONED, **COMMIT, "sink.partition-commit.delay": "1 s"},
            "'sink.partition-commit.delay' is for streams",
        ),
        (COMMIT, "'sink.partition-commit.policy.kind' needs 'partition.keys'"),
        ({"auto-compaction": "true"}, "'auto-compaction' needs 'partition.keys'"),
        ({"compaction.file-size": "1mb"}, "'compaction.file-size' does nothing without 'auto-compaction'"),
        (
            {**PARTITIONED, "sink.partition-commit.delay": "1 s"},
            "'sink.partition-commit.delay' does nothing without 'sink.partition-commit.policy.kind'",
        ),
        (
            {**PARTITIONED, **COMMIT, "partition.time-extractor.timestamp-pattern": "$day"},
            "does nothing unless 'sink.partition-commit.trigger' = 'partition-time'",
        ),
        (
            {**PARTITIONED, **COMMIT, "partition.time-extractor.kind": "custom",
             "sink.partition-commit.trigger": "partition-time"},
            "'partition.time-extractor.class' need each other",
        ),
        ({**PARTITIONED, **COMMIT, "metastore.path": "m"}, "'metastore.path' does nothing unless 'metastore' is in"),
        ({"sink.shuffle-by-partition.enable": "true"}, "'sink.shuffle-by-partition.enable' needs 'partition.keys'"),
        ({"sink.parallelism": 0}, "'sink.parallelism' is 0: it takes a whole number of at least 1"),
        ({"sink.parallelism": "²"}, "'sink.parallelism' is '²': it takes a whole number"),
        ({"sink.parallelism": "9" * 5000}, "'sink.parallelism' is '999"),
        ({**PARTITIONED, "auto-compaction": "true", "compaction.parallelism": 0}, "'compaction.parallelism' is 0: it"),
        ({**PARTITIONED, "compaction.parallelism": 2}, "'compaction.parallelism' does nothing without"),
        (
            {**PARTITIONED, **COMMIT, "sink.partition-commit.trigger": "partition-time",
             "partition.time-extractor.class": DefaultPartitionTimeExtractor()},
            "'partition.time-extractor.class' need each other",
        ),
        (
            {**PARTITIONED, "sink.partition-commit.policy.kind": "custom",
             "sink.partition-commit.policy.class.parameters": "_X",
             "sink.partition-commit.policy.class": "operators.table.connectors.connector:CONNECTOR"},
            "is for a class, and '.*:CONNECTOR' is an object already",
        ),
        (
            {**PARTITIONED, "sink.partition-commit.policy.kind": "custom",
             "sink.partition-commit.policy.class.parameters": "_X", "sink.partition-commit.policy.class":
             SuccessFilePolicy()},
            "policy.class.parameters' is for a class",
        ),
        (
            {**PARTITIONED, "sink.partition-commit.policy.kind": "custom",
             "sink.partition-commit.policy.class.parameters": "_X;_Y", "sink.partition-commit.policy.class":
             "operators.table.partitions.commit_policies:SuccessFilePolicy"},
            "which cannot be called with",
        ),
        ({"format": "csv", "csv.quote-character": ","}, "'csv.quote-character' is ',': it takes one character"),
        ({"format": "csv", "csv.null-literal": "a,b"}, "'csv.null-literal' is 'a,b': it takes a text without"),
        ({**PARTITIONED, "sink.partition-commit.policy.kind": "x"}, "policy kind 'x' is unknown"),
        (
            {**PARTITIONED, "sink.partition-commit.policy.kind": "custom",
             "sink.partition-commit.policy.class": "nowhere:Policy"},
            "'nowhere:Policy', which cannot be found",
        ),
        (
            {**PARTITIONED, **COMMIT, "sink.partition-commit.policy.class": "x:y"},
            "'sink.partition-commit.policy.class' does nothing unless 'custom' is in",
        ),
        (
            {**PARTITIONED, "sink.partition-commit.policy.kind": "custom"},
            "policy kind 'custom' needs 'sink.partition-commit.policy.class'",
        ),
        (
            {**PARTITIONED, "sink.partition-commit.policy.kind": "custom",
             "sink.partition-commit.success-file.name": "_X",
             "sink.partition-commit.policy.class": SuccessFilePolicy()},
            "'sink.partition-commit.success-file.name' does nothing unless 'success-file' is in",
        ),
        (
            {**PARTITIONED, **COMMIT, "sink.partition-commit.watermark-time-zone": "Asia/Shanghai"},
            "watermark-time-zone' does nothing unless 'sink.partition-commit.trigger' = 'partition-time'",
        ),
        (
            {**PARTITIONED, **COMMIT, "partition.time-extractor.kind": "custom",
             "partition.time-extractor.class": DefaultPartitionTimeExtractor(),
             "sink.partition-commit.trigger": "partition-time", "partition.time-extractor.timestamp-pattern": "$day"},
            "timestamp-pattern' is for 'partition.time-extractor.kind' = 'default'",
        ),
        ({**PARTITIONED, "auto-compaction": "true", "compaction.file-size": "0"}, "'compaction.file-size' is 0"),
        ({"partition.default-name": "none"}, "'partition.default-name' does nothing without 'partition.keys'"),
        ({"format": "csv", "csv.field-delimiter": "||"}, r"'csv.field-delimiter' is '\|\|': it takes one character"),
        ({"format": "csv", "csv.encoding": "latin-1"}, "'csv.encoding' is 'latin-1', for reading only"),
        (
            {"execution.runtime-mode": "batch", **PARTITIONED, "sink.staging": "t/staged", "path": "t"},
            "a visible one in the table /t",
        ),
        ({"partition.keys": "month"}, "partition.keys has 'month', which is no column"),
        ({"partition.keys": list(SCHEMA)}, "so nothing is left for the files"),
        ({"partition.keys": "day;day"}, "'partition.keys' is 'day;day': it names something twice"),
        ({"sink.rolling-policy.file-sise": "1mb"}, "did you mean 'sink.rolling-policy.file-size'?"),
        ({"zzz": 1}, "there is no option 'zzz'; there are connector, path,"),
        ({"sink.rolling-policy.file-size": "1 furlong"}, "it takes a whole number and a unit, such as '128 mb'"),
        ({"auto-compaction": "yes"}, "'auto-compaction' is 'yes': it takes 'true' or 'false'"),
        ({"sink.partition-commit.trigger": "proces-time"}, "did you mean 'process-time'?"),
        ({"format": "cvs"}, "there is no format 'cvs'; did you mean 'csv'?"),
        ({"connector": "filesytem"}, "there is no connector 'filesytem'; did you mean 'filesystem'?"),
        ({"connector": None}, r"a table needs the option 'connector', .*; it is None\n  say .*'filesystem'"),
        ({"path": " "}, "'path' is ' ': it takes a text that is not empty"),
    ],
)  # fmt: skip
def test_options_of_a_sink_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """Each is refused when the sink is made, and the error says what would work."""
    with pytest.raises(ConfigurationError, match=message):
        table_sink(table() | options, SCHEMA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source.monitor-interval": "0 s"}, "'source.monitor-interval' is 0; leave it out"),
        ({"source.monitor-interval": "1 s", "source.assignment": "static"}, "needs 'source.assignment' = 'pull'"),
        ({"source.split-size": 0}, "'source.split-size' is 0"),
        ({"partition.default-name": "none"}, "'partition.default-name' does nothing without 'partition.keys'"),
        ({"source.compression": "zip"}, "takes 'auto' or 'none'"),
    ],
)
def test_options_of_a_source_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """Likewise."""
    with pytest.raises(ConfigurationError, match=message):
        table_source(table() | options, SCHEMA)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """A user who corrects one mistake after the other would need four attempts."""
    with pytest.raises(ConfigurationError) as caught:
        table_sink({"connector": "filesystem", "format": "json", "auto-compaktion": 1, "sync-on-flush": 7}, SCHEMA)
    assert str(caught.value).split("\n  ") == [
        "the filesystem table cannot be used:",
        "'path' is missing: the directory of the table; of a sink below the run's output",
        "there is no option 'auto-compaktion'; did you mean 'auto-compaction'?",
        "'sync-on-flush' is 7: it takes 'true' or 'false'",
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"n": "INTEGER"}, "column 'n' has type 'INTEGER': types are .*; did you mean INT?"),
        ({"n": "VARCHAR(20)"}, "did you mean STRING?"),
        ({"n": "DECIMAL(3, 4)"}, r"DECIMAL\(3, 4\) must have 1 to 38 digits, up to all after the point"),
        ({"n": "TIMESTAMP(9)"}, "is finer than a microsecond"),
        ({"n": "ARRAY<INT"}, "it ends where '>' is expected"),
        ({"n": "ROW<a INT, a INT>"}, "a ROW has the field 'a' twice"),
        ({"n": "MAP<INT, INT>"}, "the keys of a MAP in format 'json' are STRING"),
        ({"n": 5}, "column 'n' has type 5"),
        ({"": "STRING"}, "the name of a column is a text that is not empty"),
        ({}, "a schema is a dict from column to type"),
    ],
)
def test_schemas_that_make_no_sense(schema: Any, message: str) -> None:
    """Types are those that columns can have."""
    with pytest.raises(ConfigurationError, match=message):
        table_source(table(), schema)


def test_bytes_are_in_no_path() -> None:
    """There is no text for them, and none for nested values."""
    for made in (table_source, table_sink):
        for kind in ("BYTES", "ARRAY<INT>"):
            with pytest.raises(ConfigurationError, match=f"partition.keys has 'b', which is {kind}"):
                made(table("parquet") | {"partition.keys": "b"}, {"n": "BIGINT", "b": kind})


UNITS = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("D", 86_400_000)]


@given(st.integers(0, 10**6), st.sampled_from(UNITS))
def test_durations_are_read_as_ms(count: int, unit: tuple[str, int]) -> None:
    """With and without a space, in capitals or not; whole numbers are ms already."""
    option = ConfigOption("a", "duration", "")
    assert option.parse(f"{count}{unit[0]}") == option.parse(f" {count} {unit[0]} ") == count * unit[1]
    assert option.parse(count) == count
    for wrong in (f"{count}", -count - 1, f"-{count} s", f"{count}.5 s", True, None, f"{count} parsec"):
        with pytest.raises(OptionError):
            option.parse(wrong)


def test_sizes_are_powers_of_1024() -> None:
    """This is the usual meaning in the field."""
    option = ConfigOption("a", "size", "")
    assert [option.parse(text) for text in ("7", "7 b", "2kb", "3 MB", "1 gb", 9)] == [7, 7, 2048, 3 << 20, 1 << 30, 9]


def test_options_have_defaults_and_can_be_described() -> None:
    """The reference is generated from the declarations."""
    declared = [ConfigOption("a", "duration", "how long", 120_000), ConfigOption("b", "text", "what", required=True)]
    options = Options({"b": "x"}, declared, "it")
    assert (options["a"], options["b"], options.is_given("a")) == (120_000, "x", False)
    assert [one.described() for one in declared] == [
        "a (duration, default 2 min): how long",
        "b (text, required): what",
    ]
    told = describe_options("filesystem", "csv").splitlines()
    assert "sink.rolling-policy.file-size (size, default 128 mb): close a part that is larger" in told
    assert "csv.header (boolean, default false): whether the first line of each file names its columns" in told


# --- sync-on-flush ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [{}, {"partition.keys": "day"}])
@pytest.mark.parametrize("synced", [True, False])
def test_what_a_power_cut_leaves(synced: bool, partitions: dict[str, str]) -> None:
    """Names without content remain unless the sink waits for the disk; a process that dies loses nothing."""
    schema = {"n": "BIGINT", "day": "STRING"}
    sink = table_sink(table() | partitions | {"sync-on-flush": str(synced).lower()}, schema)
    rows = [{"n": number, "day": "d"} for number in range(10)]
    fs = MemoryFileSystem()
    write(sink, rows, fs)
    before = read_committed(fs, "/t")
    assert sum(map(len, before.values())) == 10

    fs.crash()
    if synced:
        assert read_committed(fs, "/t") == before
    else:
        assert list(map(fs.size, fs.walk_files("/t"))) == [0] * len(list(fs.walk_files("/t")))
        assert list(fs.walk_files("/t"))


# --- connectors and formats of one's own ------------------------------------------------------------------


class Numbers:
    """A connector without files."""

    identifier = "numbers"

    def options(self) -> Sequence[ConfigOption]:
        return (ConfigOption("count", "number", "how many", required=True),)

    def takes_format(self) -> bool:
        return False

    def create_source(self, definition: Any, format: Any) -> Any:
        [name] = definition.schema
        return CollectionSource([{name: number} for number in range(definition.options["count"])])

    def create_sink(self, definition: Any, format: Any) -> Any:
        raise AssertionError


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered names are forgotten again."""
    for registry in (factories.connectors, factories.formats):
        monkeypatch.setattr(registry, "_factories", dict(registry._factories))


@pytest.mark.usefixtures("registries")
def test_a_connector_of_ones_own() -> None:
    """Its options are checked like those of built-in connectors; a name can be used only once."""
    register_connector(Numbers())
    source = table_source({"connector": "numbers", "count": "3"}, {"n": "BIGINT"})
    place = SourceWorld()
    assert drain(source.open_split(source.splits(place)[0], None, place)) == [{"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(ConfigurationError, match="'count' is missing: how many"):
        table_source({"connector": "numbers"}, {"n": "BIGINT"})
    with pytest.raises(ConfigurationError, match="there is no option 'format'"):
        table_source({"connector": "numbers", "count": 3, "format": "csv"}, {"n": "BIGINT"})
    with pytest.raises(ConfigurationError, match="there is a connector 'numbers' already"):
        register_connector(Numbers())
    register_connector(Numbers(), replace=True)
    with pytest.raises(ConfigurationError, match="is no format: it needs an identifier"):
        register_format(object())  # type: ignore[arg-type]


@pytest.mark.usefixtures("registries")
def test_connectors_of_installed_distributions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found by their entry points, as a class or an object, and only on request."""

    class Point:
        name = "numbers"
        loaded = 0

        def load(self) -> Any:
            Point.loaded += 1
            return Numbers

    monkeypatch.setattr(factories, "entry_points", lambda group: [Point()] if "connectors" in group else [])
    table_source(table(), SCHEMA)
    assert Point.loaded == 0
    for _ in range(2):
        table_source({"connector": "numbers", "count": "3"}, {"n": "BIGINT"})
    assert Point.loaded == 1
