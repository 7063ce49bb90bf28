"""``weir.log``: the committed records of a topic as rows, in batch and as a stream."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from engine.elements.errors import DataLossError, WeirError
from operators.log.disk import DiskTransactionLog, LogSettings, committed_records
from operators.log.port import Producer
from spark_bridge import register
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.log_table import LogStreamReader, LogTable
from spark_bridge.sinks import schema_of
from state_backends.files import LocalFileSystem
from tests.spark_bridge.registered.reading import copied, rows

TIMEOUT_NS = 10**9
MS = 1_000_000


class Writer:
    """Writes to two partitions of a topic, in several transactions at a time."""

    def __init__(self, path: Path) -> None:
        self.log = DiskTransactionLog(LocalFileSystem(), str(path), LogSettings(segment_bytes=600))
        self.log.create_topic("orders", 2)
        self.open: list[tuple[Producer, dict[int, int]]] = []
        self.written = self.begun = 0

    def plain(self, partition: int, count: int) -> None:
        self.log.append(None, "orders", partition, self._values(count), 0, self.written * MS)

    def begin(self) -> None:
        self.begun += 1
        producer = self.log.init_transactions(f"writer-{self.begun}", TIMEOUT_NS, 0)
        self.log.begin(producer, 0)
        self.open.append((producer, {}))

    def add(self, number: int, partition: int, count: int) -> None:
        producer, sent = self.open[number]
        self.log.append(producer, "orders", partition, self._values(count), sent.get(partition, 0), self.written * MS)
        sent[partition] = sent.get(partition, 0) + count

    def end(self, number: int, *, commit: bool) -> None:
        producer, _ = self.open.pop(number)
        (self.log.commit if commit else self.log.abort)(producer, 0)

    def _values(self, count: int) -> list[Any]:
        self.written += count
        return [{"number": self.written - left} for left in range(count, 0, -1)]

    def anything(self, drawn: random.Random) -> None:
        """One step of any kind."""
        step = drawn.randrange(5)
        if step == 0:
            self.plain(drawn.randrange(2), drawn.randint(1, 4))
        elif step == 1 and len(self.open) < 3:
            self.begin()
        elif step in (2, 3) and self.open:
            self.add(drawn.randrange(len(self.open)), drawn.randrange(2), drawn.randint(1, 4))
        elif self.open:
            self.end(drawn.randrange(len(self.open)), commit=drawn.random() < 0.6)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "log")
    yield made
    made.log.abandon()


def stream(path: Path, **options: Any) -> LogStreamReader:
    made = LogTable({"path": str(path), "topic": "orders", **{name: str(one) for name, one in options.items()}})
    found: LogStreamReader = copied(made.streamReader(from_arrow_schema(schema_of(made.schema()))))
    return found


def read(reader: LogStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    """Partition, offset and number of each record between two offsets, as tasks read them."""
    return [
        (row["partition"], row["offset"], json.loads(row["value"])["number"])
        for partition in reader.partitions(start, end)
        for batch in copied(reader).read(copied(partition))
        for row in batch.to_pylist()
    ]


def committed(path: Path) -> list[tuple[int, int, int]]:
    found = committed_records(LocalFileSystem(), str(path), "orders")
    values: list[tuple[int, list[Any]]] = list(enumerate(found))
    return [(number, one.offset, one.value["number"]) for number, records in values for one in records]


def test_a_batch(writer: Writer, tmp_path: Path) -> None:
    """Committed records up to the first undecided one, with partition, offset and the time of the append."""
    writer.plain(0, 2)
    writer.begin()
    writer.begin()
    writer.add(0, 1, 3)
    writer.add(1, 1, 2)
    writer.plain(1, 1)
    writer.end(0, commit=True)

    found = rows(LogTable, path=tmp_path / "log", topic="orders")
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == [
        (0, 0, '{"number": 0}'), (0, 1, '{"number": 1}'),
        (1, 0, '{"number": 2}'), (1, 1, '{"number": 3}'), (1, 2, '{"number": 4}'),
    ]  # fmt: skip
    assert [row["timestamp_ms"] for row in found] == [2, 2, 5, 5, 5]
    writer.end(0, commit=False)
    typed = rows(LogTable, "value struct<number: bigint>, offset bigint", path=tmp_path / "log", topic="orders")
    assert typed[-1] == {"value": {"number": 7}, "offset": 5}
    assert len(typed) == 6


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_reads_each_record_once(writer: Writer, tmp_path: Path, seed: int) -> None:
    """Whatever is written meanwhile, wherever the query starts anew; a batch that runs again reads the same."""
    drawn, path = random.Random(seed), tmp_path / "log"
    reader = stream(path)
    offset: Any = reader.initialOffset()
    found, batches = list[tuple[int, int, int]](), list[tuple[Any, Any, Any]]()
    for _ in range(25):
        for _ in range(drawn.randrange(6)):
            writer.anything(drawn)
        if drawn.random() < 0.3:
            reader = stream(path)
        limit = ReadMaxRows(drawn.randint(1, 6)) if drawn.random() < 0.5 else ReadAllAvailable()
        end = json.loads(json.dumps(reader.latestOffset(offset, limit)))
        batches.append((offset, end, read(reader, offset, end)))
        found += batches[-1][2]
        offset = end
    while writer.open:
        writer.end(0, commit=True)
    found += read(reader, offset, reader.latestOffset(offset, ReadAllAvailable()))

    assert len(found) > 20
    assert sorted(found) == committed(path)
    for start, end, before in batches:
        assert read(stream(path), start, end) == before


def test_what_is_there_at_the_start_alone(writer: Writer, tmp_path: Path) -> None:
    """With ``availableNow`` a query ends at what was there; a bound on a batch makes it several."""
    writer.plain(0, 4)
    writer.plain(0, 4)
    reader = stream(tmp_path / "log", max_records=2)
    reader.prepareForTriggerAvailableNow()
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    first = reader.latestOffset(start, limit)
    writer.plain(0, 4)
    writer.log.add_partitions("orders", 3)
    writer.plain(2, 4)

    second = reader.latestOffset(first, limit)
    assert [len(read(reader, *bounds)) for bounds in ((start, first), (first, second))] == [4, 4]
    assert reader.latestOffset(second, limit) == second
    assert reader.partitions(second, second) == []


@pytest.mark.parametrize(("most", "a_batch"), [(1, 1), (2, 1), (6, 3)])
def test_a_bound_is_shared_by_the_partitions(writer: Writer, tmp_path: Path, most: int, a_batch: int) -> None:
    """Each gives its share, and at least one record: a query always goes on."""
    for number in range(12):
        writer.plain(number % 2, 1)
    reader = stream(tmp_path / "log")
    start = reader.initialOffset()
    found = read(reader, start, reader.latestOffset(start, ReadMaxRows(most)))
    assert found == [(number, at, 2 * at + number) for number in range(2) for at in range(a_batch)]


def test_from_the_latest(writer: Writer, tmp_path: Path) -> None:
    """Only what is written from now on; a partition that is added begins at its first record."""
    writer.plain(0, 3)
    reader = stream(tmp_path / "log", starting_offsets="latest")
    start = reader.initialOffset()
    writer.plain(0, 1)
    writer.log.add_partitions("orders", 3)
    writer.plain(2, 1)

    found = read(reader, start, reader.latestOffset(start, ReadAllAvailable()))
    assert found == [(0, 3, 3), (2, 0, 4)]


def test_a_log_that_was_replaced(writer: Writer, tmp_path: Path) -> None:
    """A stream that goes on finds another batch before its position: an error, not a gap."""
    writer.plain(0, 3)
    reader = stream(tmp_path / "log")
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    writer.log.abandon()
    shutil.rmtree(tmp_path / "log")
    other = Writer(tmp_path / "log")
    other.written = 100
    other.plain(0, 3)
    other.plain(0, 3)
    other.log.abandon()

    again = stream(tmp_path / "log")
    with pytest.raises(DataLossError, match="the log was cut and written again, or replaced"):
        read(again, offset, again.latestOffset(offset, ReadAllAvailable()))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"path": "{log}"}, "needs the option 'topic'"),
        ({"path": "{no}", "topic": "orders"}, "there is no log with a topic"),
        ({"path": "{log}", "topic": "order"}, "no topic 'order'; did you mean 'orders'"),
        ({"path": "{log}", "topic": "elephants"}, "no topic 'elephants'; it has orders"),
        ({"path": "{log}", "topic": "orders", "starting_offsets": "first"}, "starting_offsets is 'first'"),
        ({"path": "{log}", "topic": "orders", "max_records": "0"}, "max_records is '0'"),
        ({"path": "{log}", "topic": "orders", "max_record": "1"}, "did you mean 'max_records'"),
    ],
)
def test_wrong_options(writer: Writer, tmp_path: Path, options: dict[str, str], why: str) -> None:
    """Each is an error when the source is loaded."""
    places = {"{log}": str(tmp_path / "log"), "{no}": str(tmp_path / "no")}
    given = {name: places.get(value, value) for name, value in options.items()}
    with pytest.raises(WeirError, match=why):
        LogTable(given).schema()
    with pytest.raises(WeirError, match=why):
        LogTable(given).streamReader(from_arrow_schema(schema_of("value string")))


def test_a_value_of_another_type(writer: Writer, tmp_path: Path) -> None:
    """Records may change their form in the middle of a log: the task fails, and names topic, offset and column."""
    writer.plain(1, 2)
    writer.log.append(None, "orders", 1, [{"number": "two"}], 0, 0)

    with pytest.raises(
        SparkBridgeError, match=r"orders-1 of log .*/log, offset 2: column 'value': .*\n  fix: declare the type of the"
    ):
        rows(LogTable, "value struct<number: bigint>", path=tmp_path / "log", topic="orders")


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_on_spark(spark: Any, writer: Writer, tmp_path: Path) -> None:
    """It goes on where the query before it has stopped, in several batches."""
    register(spark)
    frame = spark.readStream.format("weir.log").option("topic", "orders").option("max_records", 4)
    for _ in range(3):
        writer.plain(0, 4)
        writer.plain(1, 4)

    def run() -> None:
        query = frame.load(str(tmp_path / "log")).writeStream.format("parquet")
        query = query.option("checkpointLocation", str(tmp_path / "query")).option("path", str(tmp_path / "rows"))
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    writer.plain(1, 5)
    run()
    found = spark.read.parquet(str(tmp_path / "rows")).select("partition", "offset").collect()
    assert sorted(map(tuple, found)) == [one[:2] for one in committed(tmp_path / "log")]
    assert len(found) == 29
