"""``weir.state``: the entries of checkpoints and savepoints as rows."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine import Job, SequenceSource
from engine.elements.errors import WeirError
from spark_bridge import register
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.state_source import STATE_SCHEMA, StateRow, StateSource, _batch
from spark_bridge.registered.typed_columns import Columns, json_text
from spark_bridge.sinks import schema_of
from state_backends.base import LONG, CorruptStateError, ValueStateDescriptor
from state_backends.codec import inspecting_codec
from state_backends.files import LocalFileSystem
from state_backends.offline import SnapshotWriter
from tests.spark_bridge.registered.reading import copied, rows, tasks


def sums(records: int = 400) -> Job:
    job = Job("sums")
    numbers = job.source(SequenceSource(0, records, splits=2), name="numbers", parallelism=2)
    numbers.key_by(lambda number: number % 7).reduce(lambda a, b: a + b, name="sum", parallelism=2).collect([])
    return job


def savepoint(directory: Path, keys: int) -> str:
    """The path of a savepoint with a value and a timer for each key."""
    writer = SnapshotWriter("words")
    backend = writer.keyed_operator("count", LONG)
    values = {key: key * key for key in range(keys)}
    backend.value_state(ValueStateDescriptor("square")).update_many(list(values), list(values.values()))
    backend.timer_service("alarm").event_time.register([1, 1], [None, None], [40, 50])
    return writer.write(LocalFileSystem(), str(directory))


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog"])
def test_state_of_any_backend(tmp_path: Path, backend: str) -> None:
    """Each entry once, under the key group and the subtask that own it; positions of sources as operator state."""
    sums().run(storage=tmp_path, checkpoint_interval="100rec", state_backend=backend, inline_state_bytes=0)

    found = rows(StateSource, path=tmp_path)
    keyed = {row["key"]: row["value"] for row in found if row["part"] == "keyed"}
    assert keyed == {str(key): str(sum(range(key, 400, 7))) for key in range(7)}
    splits = [row for row in found if row["state"] == "splits"]
    assert [(row["part"], row["kind"], row["key_group"], row["key"]) for row in splits] == [
        ("operator", "split", None, None)
    ] * 2
    only = rows(StateSource, path=tmp_path, operator="sum", state="reduced")
    assert only == [row for row in found if row["part"] == "keyed"]


def test_records_in_flight(tmp_path: Path) -> None:
    """Those of an unaligned checkpoint, by channel, each once; with state= they are left out."""
    costs: Any = {"record": "1500ns", "slow_links": {"numbers[1]": "2ms"}}
    result = sums(8_000).run(
        storage=tmp_path, mode="unaligned", cost=costs, channel_capacity=500, checkpoint_interval="2ms", retained=50
    )
    table = result.execution.checkpoints.rows()
    with_records = next(row for row in table if row.persisted_bytes)
    path = tmp_path / "sums" / f"chk-{with_records.checkpoint_id}"

    found = rows(StateSource, path=path)
    records = [row for row in found if row["part"] == "in flight"]
    assert len(records) == with_records.persisted_bytes // 100
    assert {row["kind"] for row in records} <= {"input", "output"}
    assert {row["state"] for row in records} == {None}
    assert all(int(row["value"]) >= 0 for row in records)
    assert {row["channel"]["receiver"] for row in records} <= {0, 1}
    assert not any(row["part"] == "in flight" for row in rows(StateSource, path=path, state="reduced"))


def test_large_state_is_read_in_parts(tmp_path: Path) -> None:
    """A subtask's key groups go to several tasks, each entry to one; small parts share a task."""
    path = savepoint(tmp_path, 2_000)

    whole, (one,) = rows(StateSource, path=path), tasks(StateSource, path=path)
    parts = tasks(StateSource, path=path, partition_bytes=4_000)
    assert one == whole
    assert len(whole) == 2_002
    assert len(parts) == 5
    assert [row for part in parts for row in part] == whole
    assert max(map(len, parts)) < 600
    assert [row["value"] for row in whole if row["kind"] == "timers"] == ["40", "50"]


def test_types_of_the_user(tmp_path: Path) -> None:
    """Declared types replace the text, any columns in any order; a tuple fits a struct."""
    path = savepoint(tmp_path, 3)
    schema = "value bigint, key bigint, operator string"

    found = rows(StateSource, schema, path=path, state="square")
    assert sorted(found, key=lambda row: row["key"]) == [
        {"value": key * key, "key": key, "operator": "count"} for key in range(3)
    ]
    columns = Columns("weir.state", STATE_SCHEMA, ["value"], _struct("value struct<n: int, s: array<struct<a: date>>>"))
    day = datetime.date(2013, 1, 31)
    batch = _batch(columns, [_row((7, [(day,)])), _row({"n": 8, "s": None})])
    assert batch.to_pylist() == [{"value": {"n": 7, "s": [{"a": day}]}}, {"value": {"n": 8, "s": None}}]
    columns = Columns("weir.state", STATE_SCHEMA, ["value"], _struct("value map<string, struct<n: int>>"))
    assert _batch(columns, [_row({"a": (7,)})]).to_pydict() == {"value": [[("a", {"n": 7})]]}


def test_text_stays_readable() -> None:
    """As it was written, in any script."""
    assert json_text({"città": ("ü", None)}) == '{"città": {"$tuple": ["ü", null]}}'


def test_the_checkpoint_is_chosen_at_load(tmp_path: Path) -> None:
    """Tasks that begin later read the same one, whatever was written since."""
    savepoint(tmp_path, 3)
    source = copied(StateSource({"path": str(tmp_path), "state": "square"}))
    savepoint(tmp_path, 5)
    reader = copied(source.reader(_struct(STATE_SCHEMA)))
    assert sum(len(batch) for part in reader.partitions() for batch in reader.read(part)) == 3


def _struct(schema: str) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema_of(schema))


def _row(value: Any) -> StateRow:
    return StateRow("op", "keyed", "s", "value", 0, 5, "k", None, value)


ZONED = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
NAIVE = datetime.datetime(2020, 1, 1)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("timestamp", NAIVE), ("timestamp_ntz", ZONED), ("float", 0.1), ("int", 2**31), ("bigint", True),
        ("bigint", 1.0), ("string", 1), ("decimal(4,2)", Decimal("1.234")), ("date", NAIVE), ("array<int>", ["a"]),
        ("struct<a: int>", (1, 2)), ("struct<a: int>", {"b": 1}), ("bigint not null", None),
    ],
)  # fmt: skip
def test_a_value_of_another_type(declared: str, value: Any) -> None:
    """It is an error with its operator, state and key, never a conversion."""
    columns = Columns("weir.state", STATE_SCHEMA, ["value"], _struct(f"value {declared}"))

    with pytest.raises(SparkBridgeError, match=r"operator 'op', subtask 0, state 's', key 'k': column 'value'"):
        _batch(columns, [_row(value)])


_TYPED = st.sampled_from(
    (
        ("bigint", st.integers(-(2**63), 2**63 - 1)),
        ("double", st.floats(allow_nan=False)),
        ("string", st.text(st.characters(exclude_categories=["Cs"]))),
        ("binary", st.binary()),
        ("boolean", st.booleans()),
        ("decimal(20,6)", st.decimals(-1000, 1000, places=6)),
        ("date", st.dates()),
        ("timestamp_ntz", st.datetimes()),
        ("timestamp", st.datetimes(timezones=st.just(datetime.UTC))),
        ("array<bigint>", st.lists(st.none() | st.integers(0, 9))),
        ("map<string, double>", st.dictionaries(st.text("ab"), st.floats(0, 1))),
        ("struct<a: bigint, b: string>", st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text("x")})),
    )
)


@given(_TYPED.flatmap(lambda one: st.tuples(st.just(one[0]), st.lists(st.none() | one[1], min_size=1))))
def test_a_value_of_its_type_comes_back_equal(typed: tuple[str, list[Any]]) -> None:
    """After the codec of state and the way into a column, nulls too; as text, JSON tells values apart."""
    declared, values = typed
    codec = inspecting_codec()
    stored = [codec.decode(codec.encode(value), "test") for value in values]
    columns = Columns("weir.state", STATE_SCHEMA, ["value"], _struct(f"value {declared}"))

    found = _batch(columns, [_row(value) for value in stored]).to_pydict()["value"]

    # Arrow shows a map as its pairs.
    is_map = declared.startswith("map")
    found = [dict(one) if is_map and one is not None else one for one in found]
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "needs the option 'path'"),
        ({"path": "{no}"}, "there is no such file or directory"),
        ({"path": "{empty}"}, "holds no completed checkpoint and no savepoint"),
        ({"path": "{there}", "operater": "count"}, "no option 'operater'; did you mean 'operator'"),
        ({"path": "{there}", "operator": "cuont"}, "no operator has uid 'cuont'; did you mean 'count'"),
        ({"path": "{there}", "state": "squares"}, "state 'squares'; did you mean 'square'"),
        ({"path": "{there}", "state": "elephant"}, "state 'elephant'; there are: .*, square"),
        ({"path": "{there}", "partition_bytes": "many"}, "partition_bytes is 'many'"),
        ({"path": "nosuch://x"}, "path is 'nosuch://x'"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, str], why: str) -> None:
    """Each is an error when the source is loaded, which says what there is."""
    (tmp_path / "empty").mkdir()
    places = {"{no}": str(tmp_path / "no"), "{empty}": str(tmp_path / "empty")}
    if "{there}" in options.values():
        places["{there}"] = savepoint(tmp_path / "there", 3)

    with pytest.raises(WeirError, match=why):
        StateSource({name: places.get(value, value) for name, value in options.items()})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("keys bigint", "no column 'keys'; did you mean 'key'"),
        ("subtask bigint", "column 'subtask' is int, and the schema declares bigint"),
    ],
)
def test_a_schema_that_does_not_fit(tmp_path: Path, schema: str, why: str) -> None:
    """Unknown columns, and other types for columns that are not stored values, are refused before a task starts."""
    with pytest.raises(SparkBridgeError, match=why):
        tasks(StateSource, schema, path=savepoint(tmp_path, 1))


def test_a_damaged_file(tmp_path: Path) -> None:
    """The task that reads it fails and names the file."""
    sums().run(storage=tmp_path, checkpoint_interval="100rec", inline_state_bytes=0)
    newest = max((tmp_path / "sums").glob("chk-*"), key=lambda path: int(path.name[4:]))
    damaged = next(path for path in sorted(newest.iterdir()) if "sum" in path.name)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    with pytest.raises(CorruptStateError, match=damaged.name):
        rows(StateSource, path=tmp_path)


@pytest.mark.spark
def test_on_spark(spark: Any, tmp_path: Path) -> None:
    """By its name, from the DataFrame reader and in SQL; executors read the parts; errors say what is wrong."""
    register(spark)
    path = savepoint(tmp_path, 500)
    frame = spark.read.format("weir.state").option("path", path).option("partition_bytes", 4_000).load()

    assert frame.rdd.getNumPartitions() > 1
    assert frame.where("state = 'square'").count() == 500
    typed = spark.read.format("weir.state").schema("key bigint, value bigint").option("state", "square").load(path)
    assert typed.selectExpr("sum(value - key * key)", "max(key)").collect()[0].asDict() == {
        "sum((value - (key * key)))": 0, "max(key)": 499,
    }  # fmt: skip
    with pytest.raises(Exception, match="did you mean 'count'"):
        spark.read.format("weir.state").option("operator", "cuont").load(path)
