"""What only PostgreSQL has: connections that break, prepared transactions that others see and end, locks, and errors
that name the row."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, DataLossError, MissingDependencyError
from operators.databases import (
    DatabaseError,
    EpochHolder,
    PostgresDatabase,
    PostgresSink,
    TableDescription,
    TransactionName,
    UpsertSink,
    postgres_epochs,
)
from operators.databases.database_session import FencedError, RowRefusedError
from operators.databases.postgres_connection import imported_psycopg
from tests.operators.databases.cluster import IMPATIENT, Cluster, execute, prepared
from tests.operators.harness import Harness
from tests.postgres_server import PostgresServer, running_server

Make = Callable[..., Cluster]
# --- connections that break ----------------------------------------------------------------------------------------


def test_a_connection_that_was_cut_before_anything_was_written_is_made_anew(
    postgres_server: PostgresServer, postgres_dsn: str, postgres_cluster_of: Make
) -> None:
    """Nothing is lost with the connection: the transaction has not begun."""
    cluster = postgres_cluster_of(batch_rows=1)
    cluster.write(1)
    cluster.checkpoint(0)
    postgres_server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'weir'"
    )
    cluster.write(2)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


def test_rows_of_an_open_transaction_are_gone_with_its_connection(
    postgres_server: PostgresServer, postgres_cluster_of: Make
) -> None:
    """Neither the next batch nor the next checkpoint ignores that: half a transaction would be lost data."""
    for step in ("write", "prepare"):
        cluster = postgres_cluster_of(batch_rows=1, writer=step)
        cluster.write(1)
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'weir'"
        )
        for _ in range(2):
            with pytest.raises(DatabaseError):
                cluster.write(2) if step == "write" else cluster.snapshot()
        cluster.crash()
        cluster.write(1, 2)
        cluster.checkpoint(0)
    assert cluster.visible() == [1, 1, 2, 2]


# --- prepared transactions -----------------------------------------------------------------------------------------


def test_what_an_administrator_rolls_back_or_commits(postgres_dsn: str, postgres_cluster_of: Make) -> None:
    """Rows committed by hand are committed; rows rolled back by hand are lost, and no restart helps."""
    cluster = postgres_cluster_of()
    cluster.write(1)
    checkpoint = cluster.checkpoint()
    (name,) = prepared(postgres_dsn)
    execute(postgres_dsn, f"COMMIT PREPARED '{name}'")
    cluster.tasks[0].complete(checkpoint.id)
    assert cluster.visible() == [1]
    cluster.write(2)
    checkpoint = cluster.checkpoint()
    (name,) = prepared(postgres_dsn)
    execute(postgres_dsn, f"ROLLBACK PREPARED '{name}'")
    with pytest.raises(DataLossError, match=r"neither prepared \(pg_prepared_xacts\) nor in the ledger"):
        cluster.tasks[0].complete(checkpoint.id)


def test_names_fit_into_what_the_server_has_for_them(postgres_dsn: str, postgres_cluster_of: Make) -> None:
    """Names fit however long a uid is, and they still tell which writer made them."""
    cluster = postgres_cluster_of(writer="w" * 300)
    cluster.incarnation, cluster.attempt = 10**6, 10**6
    cluster.write(1)
    cluster.snapshot()
    (name,) = prepared(postgres_dsn)
    assert len(name.encode()) < 200
    short = postgres_cluster_of(writer="orders/out")
    short.write(1)
    short.snapshot()
    database = postgres_dsn.rpartition("=")[2]
    assert f"{database}:numbers:orders/out/0/1/1.1/0" in prepared(postgres_dsn)


def test_databases_of_one_server_do_not_see_each_other(
    postgres_server: PostgresServer, postgres_dsn: str, postgres_cluster_of: Make
) -> None:
    """The same table and writer in both: names differ, and neither aborts the transactions of the other."""
    postgres_server.execute("CREATE DATABASE beside")
    here, there = postgres_cluster_of(), Cluster(PostgresDatabase(postgres_server.dsn("beside")))
    try:
        for cluster in (here, there):
            cluster.write(1)
            cluster.checkpoint()
        there.crash()
        here.crash()
        assert here.visible() == there.visible() == [1]
    finally:
        there.close()
        postgres_server.execute("DROP DATABASE beside WITH (FORCE)")


def test_a_prepared_transaction_of_another_database_is_not_taken_for_ours(
    postgres_server: PostgresServer, postgres_dsn: str, postgres_cluster_of: Make
) -> None:
    """The server lists the transactions of all databases, and refuses to end one from elsewhere, whatever its name."""
    cluster = postgres_cluster_of()
    cluster.write(1)
    cluster.snapshot()
    (mine,) = prepared(postgres_dsn)
    left = "/".join([*mine.split("/")[:-1], "99"])
    postgres_server.execute("CREATE DATABASE elsewhere")
    try:
        execute(postgres_server.dsn("elsewhere"), f"BEGIN; CREATE TABLE one(); PREPARE TRANSACTION '{left}'")
        cluster.crash()
        cluster.write(1)
        cluster.checkpoint(0)
        assert cluster.visible() == [1]
        assert cluster.unfinished() == []
        assert left in prepared(postgres_server.dsn("elsewhere"))
    finally:
        postgres_server.execute(f"ROLLBACK PREPARED '{left}'", "elsewhere")
        postgres_server.execute("DROP DATABASE elsewhere WITH (FORCE)")


def test_a_prepared_transaction_that_is_only_called_alike_is_let_alone(
    postgres_dsn: str, postgres_cluster_of: Make
) -> None:
    """It belongs to another program, and its name begins as ours do."""
    cluster = postgres_cluster_of()
    database = postgres_dsn.rpartition("=")[2]
    theirs = f"{database}:{cluster.sink.describe('op-uid').writer}/theirs"
    connection = imported_psycopg().connect(postgres_dsn, autocommit=True)
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE theirs (a INT)")
    connection.execute(f"PREPARE TRANSACTION '{theirs}'")
    cluster.write(1)
    cluster.checkpoint()
    cluster.crash()
    assert (cluster.visible(), prepared(postgres_dsn)) == ([1], [theirs])
    connection.execute(f"ROLLBACK PREPARED '{theirs}'")
    connection.close()


def test_the_connection_of_a_zombie_is_cut(postgres_dsn: str, postgres_cluster_of: Make) -> None:
    """Its open transaction holds the lock of a key that its successor writes, too."""
    cluster = postgres_cluster_of(columns={"number": "BIGINT PRIMARY KEY", "text": "TEXT"}, batch_rows=1)
    cluster.write(1)
    (zombie,) = cluster.tasks
    cluster.start()
    cluster.write(1)
    cluster.checkpoint(0)
    assert cluster.visible() == [1]
    with pytest.raises(DatabaseError):
        zombie.process([(2, "")])


def test_the_connection_of_a_zombie_is_cut_also_if_the_first_try_breaks_off(
    postgres_dsn: str, postgres_cluster_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off between the new epoch and the cut: the request is repeated, and still cuts the same connection."""
    cluster = postgres_cluster_of(patience={"reconnect_wait_s": 0.0, "lock_timeout_ms": 200}, batch_rows=1)
    cluster.write(1)
    (held,) = execute(postgres_dsn, "SELECT backend FROM weir_epochs")
    terminate, tries = postgres_epochs._terminate, list[int]()

    def breaking_off(connection: Any, backend: int, started: object) -> None:
        tries.append(backend)
        if len(tries) == 1:
            raise imported_psycopg().OperationalError("the connection is lost")
        terminate(connection, backend, started)

    monkeypatch.setattr(postgres_epochs, "_terminate", breaking_off)
    cluster.start()
    assert tries == [held[0]] * 2
    assert execute(postgres_dsn, f"SELECT 1 FROM pg_stat_activity WHERE pid = {held[0]}") == []
    assert execute(postgres_dsn, "SELECT epoch FROM weir_epochs") == [(3,)]


def test_a_zombie_whose_connection_cannot_be_cut_is_fenced_at_the_pre_commit(
    postgres_dsn: str, postgres_cluster_of: Make
) -> None:
    """The connection may be another role's: its open transaction stays, and is never prepared."""
    cluster = postgres_cluster_of(batch_rows=1)
    cluster.write(1)
    (zombie,) = cluster.tasks
    execute(postgres_dsn, "UPDATE weir_epochs SET backend = NULL")
    cluster.start()
    with pytest.raises(FencedError):
        zombie.snapshot(1)
    assert prepared(postgres_dsn) == []


class _AnswerLost:
    """A connection that breaks after it has carried out ``PREPARE TRANSACTION``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        import psycopg

        done = self._connection.execute(statement, parameters)
        if "PREPARE TRANSACTION" in str(statement):
            raise psycopg.OperationalError("the connection is lost")
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_pre_commit_whose_answer_is_lost_is_found_to_be_carried_out(postgres_cluster_of: Make) -> None:
    """The sink asks the server whether it has the transaction; the job does not restart."""
    cluster = postgres_cluster_of(batch_rows=1)
    cluster.write(1)
    session: Any = cluster.tasks[0].operator._table.session  # type: ignore[attr-defined]
    session._writing = _AnswerLost(session._writing)
    cluster.checkpoint(0)
    cluster.write(2)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


def test_nobody_takes_over_while_rows_are_replaced(postgres_dsn: str) -> None:
    """A successor has to wait from the check of the epoch until the rows that it protects are committed."""
    description = TableDescription("t", {"k": "INT", "v": "INT"}, "w", key=("k",))
    zombie = PostgresDatabase(postgres_dsn).connect(description, str)
    successor = PostgresDatabase(postgres_dsn, **IMPATIENT).connect(description, str)
    zombie.prepare_table()
    holder = EpochHolder(0, zombie.take_over(0, 1))
    zombie.upsert(holder, [(1, 0)], [])
    import psycopg

    with psycopg.connect(postgres_dsn) as blocker:
        blocker.execute("SELECT * FROM t FOR UPDATE")
        upserting = threading.Thread(target=zombie.upsert, args=(holder, [(1, 1)], []))
        upserting.start()
        while not execute(postgres_dsn, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            time.sleep(0.01)
        with pytest.raises(DatabaseError, match="a lock was not to be had"):
            successor.take_over(0, 1)
        blocker.rollback()
        upserting.join()
    successor.take_over(0, 1)
    with pytest.raises(FencedError):
        zombie.upsert(holder, [(1, 2)], [])
    assert PostgresDatabase(postgres_dsn).rows(description) == [(1, 1)]
    zombie.close()
    successor.close()


def test_a_prepared_unique_key_is_not_waited_for_without_end(postgres_cluster_of: Make) -> None:
    """The next transaction with the same key gets an error that says how to continue."""
    cluster = postgres_cluster_of(columns={"number": "BIGINT PRIMARY KEY", "text": "TEXT"}, batch_rows=1)
    cluster.write(1)
    cluster.snapshot()
    with pytest.raises(DatabaseError, match="use UpsertSink"):
        cluster.write(1)


# --- rows and tables that do not fit -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "row", "why"),
    [
        ("TEXT NOT NULL", (2, None), "column 'text': null value"),
        ("TEXT CHECK (text <> 'no')", (2, "no"), "violates check constraint"),
        ("TEXT UNIQUE", (2, "fine"), r"Key \(text\)=\(fine\) already exists"),
        ("INT", (2, "many"), "column 'text': invalid input syntax for type integer"),
        ("VARCHAR(5)", (2, "too long"), "column 'text': value too long"),
        ("TEXT", (2**63, "x"), "column 'number': value .* is out of range"),
        ("TEXT", (2, {"a": 1}), "cannot adapt type 'dict'"),
        ("TEXT", (2, "a\0b"), "NUL"),
        ("TEXT", (2, "\ud800"), "surrogates not allowed"),
    ],
)
def test_a_row_that_the_table_refuses_is_named(
    postgres_cluster_of: Make, definition: str, row: tuple[Any, ...], why: str
) -> None:
    """The error names table, column if the server tells it, reason, and the row itself out of its batch."""
    cluster = postgres_cluster_of(columns={"number": "BIGINT", "text": definition})
    fine = [(0, "fine" if definition != "INT" else "0"), (1, "7")]
    cluster.tasks[0].process([*fine, row, (3, "9")])
    with pytest.raises(RowRefusedError, match=f"(?s)'numbers' of database.*{why}.*fix") as caught:
        cluster.snapshot()
    assert caught.value.row == row
    assert cluster.visible() == []


def test_a_constraint_that_is_checked_at_the_end_is_found_at_the_pre_commit(postgres_cluster_of: Make) -> None:
    """The constraint is deferred, but it is checked before the checkpoint completes."""
    cluster = postgres_cluster_of(columns={"number": "BIGINT UNIQUE DEFERRABLE INITIALLY DEFERRED", "text": "TEXT"})
    cluster.write(1, 1)
    with pytest.raises(RowRefusedError, match=r"already exists"):
        cluster.snapshot()


def test_tables_in_schemas_and_names_with_capitals(postgres_dsn: str) -> None:
    """``schema.table``; identifiers are taken literally."""
    execute(postgres_dsn, 'CREATE SCHEMA "Shop"')
    sink = PostgresSink(postgres_dsn, "Shop.Or\"ders", {"The Number": "INT"})
    task = Harness(sink.create_operator(), checkpointing_enabled=False)
    task.process([(7,)])
    task.finish()
    task.close()
    assert sink.committed_rows() == ["(7,)"]
    assert execute(postgres_dsn, 'SELECT "The Number" FROM "Shop"."Or""ders"') == [(7,)]


def test_who_may_only_write_need_not_be_allowed_to_create(postgres_dsn: str, postgres_cluster_of: Make) -> None:
    """It may write once another role has made the tables."""
    postgres_cluster_of().close()
    execute(postgres_dsn, "CREATE ROLE writer LOGIN")
    try:
        execute(postgres_dsn, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO writer")
        cluster = Cluster(PostgresDatabase(postgres_dsn.replace("user=weir", "user=writer")), existing="append")
        cluster.write(1)
        cluster.checkpoint(0)
        cluster.close()
        assert cluster.visible() == [1]
    finally:
        execute(postgres_dsn, "DROP OWNED BY writer")
        execute(postgres_dsn, "DROP ROLE writer")


def test_what_was_committed_stays_committed_whatever_the_server_is_set_to(postgres_dsn: str) -> None:
    """``synchronous_commit = off`` as a default of the database is not ours."""
    name = postgres_dsn.rpartition("=")[2]
    execute(postgres_dsn, f"ALTER DATABASE {name} SET synchronous_commit = off")
    connection = PostgresDatabase(postgres_dsn)._server.open_connection()
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert connection.execute("SHOW lock_timeout").fetchone() == ("10s",)
    connection.close()


def test_connections_that_were_idle_for_too_long_are_made_anew(postgres_dsn: str, postgres_cluster_of: Make) -> None:
    """Between two checkpoints there may be no request for any length of time; nothing is lost with the connections."""
    name = postgres_dsn.rpartition("=")[2]
    execute(postgres_dsn, f"ALTER DATABASE {name} SET idle_session_timeout = '100ms'")
    cluster = postgres_cluster_of()
    for number in (1, 2):
        cluster.write(number)
        cluster.checkpoint(0)
        waited = 0
        while execute(postgres_dsn, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'weir'"):
            time.sleep(0.05)
            waited += 1
            assert waited < 100
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


def test_transactions_see_who_has_taken_over_whatever_the_server_is_set_to(postgres_dsn: str) -> None:
    """With one snapshot for a whole transaction, a zombie would not see that it is one."""
    database = postgres_dsn.rpartition("=")[2]
    execute(postgres_dsn, f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
    sink = PostgresSink(PostgresDatabase(postgres_dsn), "numbers", {"number": "BIGINT"}, writer="w")
    session = sink.database.connect(sink.describe(""), str)
    session.prepare_table()
    name = TransactionName(sink.describe("").writer, 0, session.take_over(0, 1), 1, 1, 0)
    session.begin(name)
    session.write(name, [(1,)])
    execute(postgres_dsn, "UPDATE weir_epochs SET epoch = epoch + 1")
    with pytest.raises(FencedError):
        session.prepare(name, 1)
    session.close()


def test_a_server_without_prepared_transactions_is_refused() -> None:
    """The error names the setting to change. Upserts do not need prepared transactions."""
    with running_server(max_prepared_transactions=0, fsync=False) as server:
        with pytest.raises(ConfigurationError, match="set max_prepared_transactions in"):
            Cluster(PostgresDatabase(server.dsn()))
        sink = UpsertSink(PostgresDatabase(server.dsn()), "t", {"number": "BIGINT", "text": "TEXT"}, key=("number",))
        task = Harness(sink.create_operator())
        task.process([(1, "a"), (2, "b"), (1, "c")])
        task.finish()
        task.close()
        assert sink.committed_rows() == ["(1, 'c')", "(2, 'b')"]


def test_a_server_with_too_few_prepared_transactions_says_so() -> None:
    """When all are in use, the checkpoint fails, and the task goes back."""
    with running_server(max_prepared_transactions=1, fsync=False) as server:
        cluster = Cluster(PostgresDatabase(server.dsn()))
        cluster.write(1)
        cluster.checkpoint()
        cluster.write(2)
        with pytest.raises(DatabaseError, match="raise max_prepared_transactions"):
            cluster.snapshot()
        cluster.crash()
        cluster.write(2)
        cluster.checkpoint(0)
        assert cluster.visible() == [1, 2]
        cluster.close()


def test_a_dsn_that_is_none_is_refused() -> None:
    """Refused are a dsn that is not text, an invalid dsn, a dsn where no server answers, and invalid options."""
    for dsn in (5, "host=127.0.0.1 nonsense"):
        with pytest.raises(ConfigurationError, match="dsn"):
            Harness(PostgresSink(dsn, "t", {"a": "INT"}).create_operator())  # type: ignore[arg-type]
    nobody = PostgresDatabase("host=127.0.0.1 port=1", **IMPATIENT)
    started = time.monotonic()
    with pytest.raises(DatabaseError, match="refused"):
        Harness(PostgresSink(nobody, "t", {"a": "INT"}).create_operator())
    assert time.monotonic() - started < 5
    wrong: list[dict[str, Any]] = [
        {"reconnects": -1}, {"reconnect_wait_s": -1}, {"reconnect_wait_s": "1"}, {"lock_timeout_ms": 0},
        {"connect_timeout_s": 0},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ConfigurationError):
            PostgresDatabase("", **options)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg is imported only where it is needed."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"weirstream\[postgres\]"):
        imported_psycopg()
