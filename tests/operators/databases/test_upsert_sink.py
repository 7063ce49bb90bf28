"""The sink that keeps one row per key: what it writes and when, and which rows are there after crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.databases import (
    DatabaseRequest,
    EpochHolder,
    MemoryDatabase,
    SinkDatabase,
    TableDescription,
    UnansweredError,
    UpsertSink,
)
from operators.databases.database_session import FencedError, RowRefusedError
from operators.log.port import ANSWER_LOST, DELIVERED
from tests.operators.harness import Harness

COLUMNS = {"key": "TEXT", "value": "BIGINT"}


class Table:
    """A sink, one task of it at a time, and the rows that readers see."""

    def __init__(self, database: SinkDatabase, **options: Any) -> None:
        self.sink = UpsertSink(database, "totals", COLUMNS, key=("key",), **options)
        self.attempt = 0
        self.task = self.start()

    def start(self) -> Harness:
        self.attempt += 1
        self.task = Harness(self.sink.create_operator(), attempt=self.attempt)
        return self.task

    def crash(self) -> None:
        self.task.operator.abandon()
        self.start()

    def rows(self) -> dict[str, int]:
        return dict(sorted(self.sink.database.rows(self.sink.describe("op-uid"))))


@pytest.fixture
def table(database: SinkDatabase) -> Iterator[Table]:
    made = Table(database)
    yield made
    made.task.operator.abandon()


def test_the_last_record_of_a_key_is_its_row(table: Table) -> None:
    """The records may come in one batch, in several, or with a checkpoint between them."""
    table.task.process([("a", 1), ("b", 1), ("a", 2)])
    assert table.rows() == {}
    table.task.snapshot(1)
    assert table.rows() == {"a": 2, "b": 1}
    table.task.process([("b", 2)])
    table.task.process([("b", 3), ("c", 3)])
    table.task.finish()
    assert table.rows() == {"a": 2, "b": 3, "c": 3}


def test_what_a_completed_checkpoint_covers_is_in_the_table_before_it_completes(table: Table) -> None:
    """A crash directly after the snapshot does not lose any of it."""
    table.task.process([("a", 1)])
    table.task.snapshot(1)
    table.crash()
    assert table.rows() == {"a": 1}


def test_a_replay_leaves_what_an_undisturbed_run_leaves(table: Table) -> None:
    """Records written after the checkpoint come again, and change nothing in the end."""
    records = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]
    table.task.process(records[:2])
    table.task.snapshot(1)
    table.task.process(records[2:4])
    table.task.snapshot(2)
    table.crash()
    table.task.process(records[2:])
    table.task.finish()
    assert table.rows() == {"a": 3, "b": 5, "c": 4}


def test_a_record_that_deletes_takes_the_row_of_its_key(database: SinkDatabase) -> None:
    """The row may have been written long ago; a later record makes it anew."""
    table = Table(database, delete=lambda record: record[1] is None)
    table.task.process([("a", 1), ("b", 1), ("c", 1)])
    table.task.snapshot(1)
    table.task.process([("a", None), ("b", None), ("b", 2), ("d", 1), ("d", None)])
    table.task.finish()
    assert table.rows() == {"b": 2, "c": 1}
    table.task.close()


def test_with_a_version_an_older_record_changes_nothing(database: SinkDatabase) -> None:
    """An older record changes nothing in a batch, later, or by deleting: a replay is never seen."""
    table = Table(database, version="value", delete=lambda record: record[1] % 10 == 0)
    table.task.process([("a", 5), ("a", 4), ("b", 6), ("c", 7)])
    table.task.snapshot(1)
    seen = table.rows()
    table.crash()
    for record in [("a", 5), ("a", 4), ("b", 6), ("b", 0), ("c", 7)]:
        table.task.process([record])
        table.task.snapshot(2)
        assert table.rows() == seen == {"a": 5, "b": 6, "c": 7}
    table.task.process([("b", 10), ("c", 8)])
    table.task.finish()
    assert table.rows() == {"a": 5, "c": 8}
    table.task.close()


def test_a_row_without_a_version_is_older_than_any(real_database: SinkDatabase) -> None:
    """Such rows exist in a table that got its version column later: they are replaced, and deleted."""
    plain = UpsertSink(real_database, "totals", {**COLUMNS, "version": "BIGINT"}, key=("key",))
    first = Harness(plain.create_operator())
    first.process([("a", 1, None), ("b", 1, None)])
    first.finish()
    first.close()
    options: dict[str, Any] = {"key": ("key",), "version": "version", "delete": lambda record: record[1] is None}
    sink = UpsertSink(real_database, "totals", ("key", "value", "version"), **options)
    task = Harness(sink.create_operator(), attempt=2)
    task.process([("a", 2, 1), ("b", None, 1)])
    task.finish()
    assert real_database.rows(sink.describe("op-uid")) == [("a", 2, 1)]
    task.close()


def test_the_model_takes_a_row_without_a_version_for_older_than_any() -> None:
    """The databases do so, too."""
    description = TableDescription("t", ("key", "version"), "w", key=("key",), version="version")
    session = MemoryDatabase().connect(description, str)
    holder = EpochHolder(0, session.take_over(0, 1))
    session.upsert(holder, [("a", None), ("b", None)], [])
    session.upsert(holder, [("a", 1)], [("b", 1)])
    assert session._database.rows(description) == [("a", 1)]  # type: ignore[attr-defined]


def test_without_a_version_a_row_may_go_back_for_a_while(table: Table) -> None:
    """Rows go back during a replay, until the newer record has come again."""
    table.task.process([("a", 1), ("a", 2)])
    table.task.snapshot(1)
    table.crash()
    table.task.process([("a", 1)])
    table.task.snapshot(2)
    assert table.rows() == {"a": 1}
    table.task.process([("a", 2)])
    table.task.finish()
    assert table.rows() == {"a": 2}


def test_a_zombie_writes_nothing_over_newer_rows(table: Table) -> None:
    """It wakes up long after its successor has finished, and holds older records."""
    zombie = table.task
    zombie.process([("a", 1)])
    table.start()
    table.task.process([("a", 1), ("a", 2)])
    table.task.finish()
    with pytest.raises(FencedError, match="another writer="):
        zombie.finish()
    zombie.operator.abandon()
    assert table.rows() == {"a": 2}


def test_rows_are_written_when_there_are_enough_of_them_or_when_time_is_up() -> None:
    """Keys count, not records; a timer writes the rest."""
    table = Table(MemoryDatabase(), batch_rows=2, flush_interval_ms=100, request_ns=7)
    started = table.task.context.now_ns
    table.task.process([("a", 1), ("a", 2)])
    assert table.rows() == {}
    table.task.process([("b", 1)])
    assert table.rows() == {"a": 2, "b": 1}
    assert table.task.context.now_ns == started + 7
    table.task.process([("c", 1)])
    table.task.advance_ms(100)
    assert table.rows() == {"a": 2, "b": 1, "c": 1}
    table.task.process([("c", 2)])
    table.task.advance_ms(101)
    assert table.rows()["c"] == 2


@settings(max_examples=100)
@given(
    records=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12),
    cuts=st.lists(st.sampled_from(["snapshot", "complete", "crash", "lost"]), max_size=8),
    batch_rows=st.sampled_from([1, 2, 100]),
)
def test_whatever_happens_the_end_is_that_of_an_undisturbed_run(
    records: list[tuple[str, int]], cuts: list[str], batch_rows: int
) -> None:
    """Records from the last completed checkpoint on come again, as often as there are crashes; 0 deletes."""
    database = MemoryDatabase()
    table = Table(database, delete=lambda record: record[1] == 0, batch_rows=batch_rows)
    at = completed = 0
    snapshots: list[int] = []
    fates = [DELIVERED]

    def gate(request: DatabaseRequest) -> str:
        return fates.pop() if len(fates) > 1 and request.kind == "upsert" else DELIVERED

    database.gate = gate
    for cut in [*cuts, "crash"]:
        try:
            table.task.process(records[at : at + 2])
            at = min(at + 2, len(records))
            if cut == "snapshot":
                table.task.snapshot(1)
                snapshots.append(at)
            elif cut == "complete" and snapshots:
                completed = snapshots.pop()
            elif cut == "lost":
                fates.append(ANSWER_LOST)
            elif cut == "crash":
                table.crash()
                at, snapshots = completed, []
        except UnansweredError:
            table.crash()
            at, snapshots = completed, []
    database.gate = None
    table.task.process(records[at:])
    table.task.finish()
    expected: dict[str, int] = {}
    for key, value in records:
        if value:
            expected[key] = value
        else:
            expected.pop(key, None)
    assert table.rows() == dict(sorted(expected.items()))


def test_a_row_that_the_table_refuses_is_told(real_database: SinkDatabase) -> None:
    """The error says which record of the batch, and why; the other rows of that batch are not written either."""
    columns = {"key": "TEXT", "value": "BIGINT CHECK (value < 10)"}
    sink = UpsertSink(real_database, "limited", columns, key=("key",))
    task = Harness(sink.create_operator())
    task.process([("a", 1), ("b", 11), ("c", 2)])
    with pytest.raises(RowRefusedError, match=r"(?is)limited.*check.*\('b', 11\)"):
        task.snapshot(1)
    assert real_database.rows(sink.describe("op-uid")) == []
    task.operator.abandon()


def test_records_that_are_no_rows_are_told() -> None:
    """A key that is None or not a value, a row that is too short, a function that fails."""
    fails: dict[str, Any] = {"delete": lambda record: record.gone}
    for options, record in (({}, (None, 1)), ({}, (["a"], 1)), ({}, ("a",)), (fails, ("a", 1))):
        table = Table(MemoryDatabase(), **options)
        with pytest.raises(UserFunctionError) as caught:
            table.task.process([("fine", 1), record] if not options else [record])
        assert caught.value.record == record


@pytest.mark.parametrize(("records", "why"), [
    ([("a", None)], r"the version \(value\) is None"),
    ([("a", 1), ("a", "2")], "not supported between instances of 'str' and 'int'"),
])  # fmt: skip
def test_a_version_that_cannot_be_compared_is_told(records: list[Any], why: str) -> None:
    """The error names the record. A row without a version could never be replaced, and would replace newer rows."""
    table = Table(MemoryDatabase(), version="value")
    with pytest.raises(UserFunctionError, match=why) as caught:
        table.task.process(records)
    assert caught.value.record == records[-1]


@pytest.mark.parametrize(
    "options", [{"key": ()}, {"key": "key"}, {"key": ("nothing",)}, {"version": "x"}, {"batch_rows": 0},
                {"key": 5}, {"key": ("key", "key")}, {"version": "key"}, {"delete": "key"}, {"row": "key"},
                {"writer": ""}, {"writer": 5}, {"table": 5},
                {"flush_interval_ms": 0}, {"request_ns": -1}, {"database": "shop.sqlite"},
                {"database": MemoryDatabase}],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    """They are refused when the sink is described."""
    with pytest.raises(ConfigurationError):
        UpsertSink(**{"database": MemoryDatabase(), "table": "totals", "columns": COLUMNS, "key": ("key",), **options})


def test_a_fresh_sink_is_like_the_first_with_nothing_in_it() -> None:
    """Each option is carried over, and the database is in memory."""
    sink = UpsertSink(
        MemoryDatabase(), "totals", COLUMNS, key=("key",), version="value", delete=bool, row=tuple, writer="w",
        batch_rows=5, flush_interval_ms=6, request_ns=7,
    )  # fmt: skip
    fresh = sink.fresh()
    assert {name for name, value in vars(sink).items() if vars(fresh)[name] != value} == {"database"}
    assert fresh.committed_rows() == []
    task = Harness(fresh.create_operator())
    assert task.operator.fingerprint() == "[]"
    task.process([["b", 0], ["a", 0]])
    assert "('b',)" in str(task.operator.fingerprint())
    fresh.delete = None
    task.finish()
    table = Table(MemoryDatabase())
    table.task.process([("b", 1), ("a", 2)])
    table.task.finish()
    assert table.sink.committed_rows() == ["('a', 2)", "('b', 1)"]
    before = table.sink.fingerprint()
    table.crash()
    assert table.sink.committed_rows() == ["('a', 2)", "('b', 1)"]
    assert table.sink.fingerprint() != before, "its epoch decides who may write"
    assert table.sink.text_of(["a", 2]) == "('a', 2)"
