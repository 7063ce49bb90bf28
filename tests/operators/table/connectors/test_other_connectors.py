"""The connectors without files: generated rows, printed and dropped ones, rows in a log and in Kafka."""

from __future__ import annotations

import datetime
import decimal
import sys
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, JobFailedError, UserFunctionError
from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.log.disk import committed_records
from operators.sources import CollectionSource, SourceOperator
from operators.table.connectors.connector import table_sink, table_source
from operators.table.types import data_type
from state_backends.files import MemoryFileSystem
from tests.operators.harness import Harness
from tests.operators.log.kafka.fake_kafka import Broker, FakeClient
from tests.operators.log.kafka.test_kafka import read as read_of
from tests.operators.sources.test_in_memory import SourceWorld, drain
from tests.runtime.support import execution

TYPES = (
    "TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "BOOLEAN", "STRING", "BYTES", "DATE", "TIME(3)",
    "TIMESTAMP", "TIMESTAMP_LTZ(0)", "ARRAY<INT>", "MAP<STRING, DATE>", "ROW<x INT, y DOUBLE>",
)  # fmt: skip
SCHEMA = {f"c{at}": kind for at, kind in enumerate(TYPES)}


def rows_of(options: dict[str, Any], schema: dict[str, str]) -> list[Any]:
    source, place = table_source({"connector": "datagen"} | options, schema), SourceWorld()
    return [row for split in source.splits(place) for row in drain(source.open_split(split, None, place))]


def test_generated_rows_have_their_types_and_follow_from_the_seed() -> None:
    """The same for any number of splits; others for another seed."""
    rows = rows_of({"number-of-rows": 50}, SCHEMA)
    assert len(rows) == 50
    for row in rows:
        for name, kind in SCHEMA.items():
            assert data_type(kind).checked(row[name]) == row[name]
    assert rows_of({"number-of-rows": 50, "splits": 3}, SCHEMA) == rows
    assert rows_of({"number-of-rows": 50, "seed": 1}, SCHEMA)[0] != rows[0]
    assert len({repr(row) for row in rows}) == 50


@pytest.mark.parametrize("kind", ["DECIMAL(38, 0)", "DECIMAL(38, 38)", "DECIMAL(30, 2)"])
def test_generated_decimals_have_all_digits_of_their_type(kind: str) -> None:
    """More than Python's own context keeps."""
    rows = rows_of({"number-of-rows": 9}, {"p": kind})
    assert [str(data_type(kind).checked(row["p"])) for row in rows] == [str(row["p"]) for row in rows]
    assert max(len(row["p"].as_tuple().digits) for row in rows) >= 30
    bound = "0.12345678901234567890123456789012345678"
    least = {"number-of-rows": 1, "fields.p.min": bound, "fields.p.max": bound}
    if kind == "DECIMAL(38, 38)":
        assert [str(row["p"]) for row in rows_of(least, {"p": kind})] == [bound]


def test_generated_fields_have_bounds_sequences_lengths_and_nulls() -> None:
    """Rows end where the shortest sequence does."""
    schema = {"id": "INT", "name": "STRING", "n": "SMALLINT", "p": "DECIMAL(5, 2)", "day": "DATE", "t": "TIME"}
    options = {
        "fields.id.kind": "sequence", "fields.id.start": "5", "fields.id.end": "104", "fields.name.length": 3,
        "fields.n.min": "-1", "fields.n.max": "1", "fields.p.min": "9.98", "fields.p.max": "9.99",
        "fields.n.null-rate": 50,
        "fields.day.min": "2013-01-30", "fields.day.max": "2013-01-31", "fields.t.max": "00:00:01",
    }  # fmt: skip
    rows = rows_of(options, schema)
    assert [row["id"] for row in rows] == list(range(5, 105))
    assert [len(rows_of(options | {"number-of-rows": count}, schema)) for count in (7, 1_000)] == [7, 100]
    assert {row["n"] for row in rows} == {None, -1, 0, 1}
    assert 25 < sum(row["n"] is None for row in rows) < 75
    assert {str(row["p"]) for row in rows} == {"9.98", "9.99"}
    assert {row["day"] for row in rows} == {datetime.date(2013, 1, 30), datetime.date(2013, 1, 31)}
    assert {str(row["t"]) for row in rows} == {"00:00:00", "00:00:01"}
    assert {len(row["name"]) for row in rows} == {3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'number-of-rows' is missing, and no field is a sequence"),
        ({"fields.n.kind": "sequence"}, "'fields.n.start' and 'fields.n.end' must both be given"),
        (
            {"fields.n.kind": "sequence", "fields.n.start": "5", "fields.n.end": "4"},
            "must both be given, the end not before the start",
        ),
        ({"number-of-rows": 1, "fields.b.min": "a"}, "'fields.b.min' is not for BYTES"),
        (
            {"fields.d.kind": "sequence", "fields.d.end": "1"},
            "'sequence' is for whole numbers and STRING, not for DATE",
        ),
        ({"fields.n.min": "3", "fields.n.max": "2"}, "'fields.n.min' is above 'fields.n.max'"),
        ({"fields.n.min": "x"}, "'fields.n.min' is 'x': an INT is a whole number of 32 bits"),
        ({"fields.n.start": "3"}, "'fields.n.start' does nothing for a random field"),
        ({"fields.n.nul-rate": 3}, "there is no option 'fields.n.nul-rate'; did you mean 'fields.n.null-rate'"),
        ({"fields.m.min": "3"}, "there is no option 'fields.m.min'; did you mean 'fields.n.min' or 'fields.d.min'"),
        ({"fields.n.null-rate": 101}, "'fields.n.null-rate' is above 100"),
        ({"number-of-rows": 1, "splits": 0}, "'splits' is 0: it takes a whole number of at least 1"),
        ({"number-of-rows": 1, "rows-per-second": "0"}, "'rows-per-second' is '0': it takes a whole number of at"),
    ],
)
def test_options_of_generated_fields_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """Unknown ones are told with their nearest neighbours."""
    with pytest.raises(ConfigurationError, match=message):
        rows_of(options, {"n": "INT", "d": "DATE", "b": "BYTES"})


@pytest.mark.parametrize("connector", ["print", "blackhole", "datagen"])
def test_a_connector_that_goes_one_way_says_so(connector: str) -> None:
    """The error says what it does."""
    other = table_sink if connector == "datagen" else table_source
    more = {"number-of-rows": 1} if connector == "datagen" else {}
    with pytest.raises(ConfigurationError, match=f"'{connector}' only"):
        other({"connector": connector, **more}, {"n": "INT"})


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, "1> {'n': 1}\n"),
        ({"print-identifier": "id"}, "id:1> {'n': 1}\n"),
        ({"standard-error": "true"}, "1> {'n': 1}\n"),
    ],
)
def test_rows_are_printed(options: dict[str, Any], lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After they were checked."""
    sink = table_sink({"connector": "print"} | options, {"n": "INT"})
    task = Harness(sink.create_operator(), parallelism=2)
    task.process([{"n": 1}])
    shown = capsys.readouterr()
    assert (shown.err if options.get("standard-error") else shown.out) == lines
    with pytest.raises(UserFunctionError, match="column 'n': 'x' is no INT"):
        task.process([{"n": "x"}])


def test_a_blackhole_takes_rows_of_the_schema() -> None:
    """And no others; its parallelism is an option."""
    sink = table_sink({"connector": "blackhole", "sink.parallelism": 3}, {"n": "INT"})
    assert sink.parallelism == 3
    Harness(sink.create_operator()).process([{"n": 1}, {"n": None}])
    with pytest.raises(UserFunctionError, match="a row of the table is a dict with n; this one has m"):
        Harness(sink.create_operator()).process([{"m": 1}])


@pytest.mark.parametrize("connector", ["print", "blackhole", "log", "kafka", "datagen"])
def test_without_files_there_are_no_partitions(connector: str) -> None:
    """Their columns would be missing in the rows."""
    options = {
        "print": {}, "blackhole": {}, "log": {"path": "l", "topic": "t"}, "datagen": {"number-of-rows": 1},
        "kafka": {"topic": "t", "format": "json", "properties.bootstrap.servers": "host:1"},
    }[connector]  # fmt: skip
    made = {"print": [table_sink], "blackhole": [table_sink], "datagen": [table_source]}
    for make in made.get(connector, [table_sink, table_source]):
        with pytest.raises(ConfigurationError, match=r"'partition.keys' are columns in the paths of files"):
            make({"connector": connector, "partition.keys": "n", **options}, {"n": "INT", "p": "INT"})


@pytest.mark.parametrize("connector", ["print", "blackhole", "log", "kafka"])
def test_a_sink_without_subtasks_is_refused(connector: str) -> None:
    """When the table is made, with the option's name."""
    options = {"connector": connector, "sink.parallelism": 0, "topic": "t", "path": "l", "format": "json"}
    with pytest.raises(ConfigurationError, match=r"'sink\.parallelism' is 0: it takes a whole number of at least 1"):
        table_sink(options | {"properties.bootstrap.servers": "host:1"}, {"n": "INT"})


# --- logs -------------------------------------------------------------------------------------------------

LOG_SCHEMA = {"n": "INT", "p": "DECIMAL(5, 2)", "t": "TIME(3)", "a": "ARRAY<DATE>"}


def log_table(**more: Any) -> dict[str, Any]:
    return {"connector": "log", "path": "/log", "topic": "rows"} | {
        key.replace("__", "."): one for key, one in more.items()
    }


def run_log(fs: MemoryFileSystem, rows: list[Any], options: dict[str, Any]) -> None:
    job = Job("write")
    job.source(CollectionSource(rows), name="rows").sink(table_sink(options, LOG_SCHEMA), name="log")
    execution(job, file_system=fs).run().raise_on_failure()


def test_rows_come_back_from_a_log() -> None:
    """With the types of the schema; a row that does not fit is refused on both sides."""
    fs = MemoryFileSystem()
    rows = [{"n": n, "p": n, "t": datetime.time(5, n), "a": [datetime.date(2013, 1, 1), None]} for n in range(9)]
    run_log(fs, rows, log_table(partitions=2))
    options = log_table() | {"scan.bounded.mode": "latest-offset"}
    results = CollectedResults()
    job = Job("read")
    job.source(table_source(options, LOG_SCHEMA), name="table").collect(results, name="out")
    execution(job, file_system=fs).run().raise_on_failure()
    assert results.records == rows
    assert str(results.records[1]["p"]) == "1.00"

    job = Job("read")
    job.source(table_source(options, {**LOG_SCHEMA, "n": "BOOLEAN"}), name="table").collect([], name="out")
    with pytest.raises(JobFailedError, match="column 'n': 0 is no BOOLEAN"):
        execution(job, file_system=fs).run().raise_on_failure()
    with pytest.raises(JobFailedError, match=r"column 'p': Decimal\('0.001'\) is no DECIMAL\(5, 2\)"):
        run_log(MemoryFileSystem(), [{**rows[0], "p": decimal.Decimal("0.001")}], log_table())


def test_options_of_a_log_reach_what_they_are_about() -> None:
    """Each is seen in what is made; a start at a time needs the time."""
    sink = table_sink(
        log_table()
        | {"sink.existing": "append", "sink.transactional-id-prefix": "x", "sink.parallelism": 2, "partitions": 3},
        LOG_SCHEMA,
    )
    assert (sink.delivery, sink.existing, sink.prefix) == ("exactly-once", "append", "x")
    assert (sink.parallelism, sink.partitions) == (2, 3)
    sink = table_sink(log_table() | {"sink.delivery-guarantee": "at-least-once"}, LOG_SCHEMA)
    assert (sink.delivery, sink.existing, sink.parallelism, sink.partitions) == ("at-least-once", "fail", None, 1)
    with pytest.raises(ConfigurationError, match=r"'sink.existing' does nothing unless 'sink.delivery-guarantee'"):
        table_sink(log_table() | {"sink.delivery-guarantee": "none", "sink.existing": "append"}, LOG_SCHEMA)
    more = {"properties.group.id": "g", "scan.isolation": "read_uncommitted", "scan.startup.mode": "latest-offset"}
    found = {"scan.topic-partition-discovery.interval": "2 s"}
    source = table_source(log_table() | more | found, LOG_SCHEMA)
    assert (source.group, source.topic, source.path) == ("g", "rows", "/log")
    assert (source._isolation, source._start, source._is_bounded) == ("read_uncommitted", "latest", False)
    assert source.discovery_interval_ms == 2_000
    timed = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 7}
    assert table_source(log_table() | timed, LOG_SCHEMA)._start_at_ms == 7
    with pytest.raises(ConfigurationError, match="is for unbounded sources"):
        table_source(log_table() | found | {"scan.bounded.mode": "latest-offset"}, LOG_SCHEMA)
    for alone in ({"scan.startup.mode": "timestamp"}, {"scan.startup.timestamp-millis": 7}):
        with pytest.raises(ConfigurationError, match="need each other"):
            table_source(log_table() | alone, LOG_SCHEMA)
    with pytest.raises(ConfigurationError, match=r"'scan\.startup\.mode' is 'earliest': it takes 'earliest-offset'"):
        table_source(log_table() | {"scan.startup.mode": "earliest"}, LOG_SCHEMA)


def test_tables_of_one_job_share_a_log() -> None:
    """Only one can write to it at a time, and options cannot share an object."""
    fs = MemoryFileSystem()
    job = Job("write")
    rows = job.source(CollectionSource([{"n": n} for n in range(4)]), name="rows")
    for topic in ("a", "b"):
        rows.sink(table_sink(log_table(topic=topic), {"n": "INT"}), name=topic)
    execution(job, file_system=fs).run().raise_on_failure()
    for topic in ("a", "b"):
        assert [one.value for one in committed_records(fs, "/log", topic)[0]] == [{"n": n} for n in range(4)]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    client = FakeClient()
    monkeypatch.setitem(sys.modules, "confluent_kafka", client)
    return client.broker


KAFKA = {
    "connector": "kafka",
    "topic": "out",
    "properties.bootstrap.servers": "host:1",
    "scan.bounded.mode": "latest-offset",
}


@pytest.mark.parametrize(
    ("format", "message"),
    [("json", b'{"n":1,"p":"2.50"}'), ("csv", b"1,2.50"), ("avro", b"\x02\x02\x02\x04\x00\xfa"), ("raw", b"\0\0\0\1")],
)
def test_rows_are_messages_of_kafka(broker: Broker, format: str, message: bytes) -> None:
    """A row is one message, without a line end, a header or a name."""
    schema = {"n": "INT"} if format == "raw" else {"n": "INT", "p": "DECIMAL(5, 2)"}
    row = {"n": 1} if format == "raw" else {"n": 1, "p": data_type("DECIMAL(5, 2)").of_text("2.5")}
    task = Harness(table_sink(KAFKA | {"format": format}, schema).create_operator())
    task.process([row])
    assert broker.visible() == [message]
    reader = Harness(SourceOperator(table_source(KAFKA | {"format": format}, schema)))
    assert read_of(reader) == [row]
    other = table_source(KAFKA | {"format": format}, dict.fromkeys(schema, "BIGINT" if format == "raw" else "DATE"))
    with pytest.raises(UserFunctionError, match=r"value, at offset 0 of .*out.* raised"):
        read_of(Harness(SourceOperator(other)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "parquet"}, "format 'parquet' is for files: use 'json', 'csv', 'avro' or 'raw'"),
        ({"format": "json", "json.ignore-parse-errors": "true"}, "'json.ignore-parse-errors' is for files"),
        (
            {"format": "json", "properties.bootstrap.server": "host:1"},
            "no option 'properties.bootstrap.server'; did you mean 'properties.bootstrap.servers'",
        ),
    ],
)
def test_options_of_kafka_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """What is for files is refused."""
    with pytest.raises(ConfigurationError, match=message):
        table_source(KAFKA | options, {"n": "INT", "p": "INT"})


def test_names_of_transactions_belong_to_exactly_once(broker: Broker) -> None:
    """They are needed there, and do nothing elsewhere."""
    options = KAFKA | {"format": "json"}
    exactly = options | {"sink.delivery-guarantee": "exactly-once"}
    sink = table_sink(exactly | {"sink.transactional-id-prefix": "x"}, {"n": "INT"})
    assert (sink.delivery, sink.prefix) == ("exactly-once", "x")
    with pytest.raises(ConfigurationError, match=r"'exactly-once' needs 'sink.transactional-id-prefix'"):
        table_sink(exactly, {"n": "INT"})
    with pytest.raises(ConfigurationError, match=r"'sink.transactional-id-prefix' does nothing unless"):
        table_sink(options | {"sink.transactional-id-prefix": "x"}, {"n": "INT"})
