"""The rules of the port, for every database that implements it: the real ones keep the promises of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from engine.elements.errors import ConfigurationError
from operators.databases import (
    DatabaseError,
    EpochHolder,
    MemoryDatabase,
    SinkDatabase,
    SinkSession,
    TableDescription,
    TransactionName,
)
from operators.databases.database_session import FencedError, TransactionGoneError, check_table

COLUMNS = {"key": "TEXT", "value": "BIGINT"}
PLAIN = TableDescription("numbers", COLUMNS, "numbers:out", transaction_column="written_by")
KEYED = TableDescription("totals", {"key": "TEXT", "value": "BIGINT"}, "totals:out", key=("key",))
VERSIONED = TableDescription("newest", {"key": "TEXT", "value": "BIGINT"}, "newest:out", key=("key",), version="value")

Open = Callable[..., SinkSession]


def unchanged(path: str) -> str:
    return path


@pytest.fixture
def opened(database: SinkDatabase) -> Iterator[Open]:
    """Opens sessions, and closes them after the test."""
    sessions: list[SinkSession] = []

    def open_session(description: TableDescription = PLAIN) -> SinkSession:
        session = database.connect(description, unchanged)
        sessions.append(session)
        session.prepare_table()
        return session

    yield open_session
    for session in sessions:
        session.close()


def name(epoch: int, number: int = 0, subtask: int = 0, writer: str = "numbers:out") -> TransactionName:
    return TransactionName(writer, subtask, epoch, 1, 1, number)


def written(session: SinkSession, one: TransactionName) -> None:
    session.begin(one)
    session.write(one, [("a", 1)])


def prepared(
    session: SinkSession, one: TransactionName, *rows: tuple[Any, ...], checkpoint_id: int | None = 1
) -> None:
    session.begin(one)
    if rows:
        session.write(one, rows)
    session.prepare(one, checkpoint_id)


def committed(session: SinkSession, one: TransactionName, *rows: tuple[Any, ...]) -> None:
    prepared(session, one, *rows)
    session.commit(one)


def visible(database: SinkDatabase, description: TableDescription = PLAIN) -> list[tuple[Any, ...]]:
    width = len(description.columns)
    return sorted((row[:width] for row in database.rows(description)), key=repr)


def test_rows_appear_with_the_commit_and_all_at_once(database: SinkDatabase, opened: Open) -> None:
    """Neither writing nor preparing shows any rows; the second commit changes nothing, and says so."""
    session = opened()
    one = name(session.take_over(0, 1))
    session.begin(one)
    session.write(one, [("a", 1), ("b", None)])
    session.write(one, [("c", 3)])
    session.prepare(one, 7)
    assert visible(database) == []
    assert session.unfinished() == [one]
    assert session.commit(one)
    assert not session.commit(one)
    assert visible(database) == [("a", 1), ("b", None), ("c", 3)]
    assert session.committed() == [(one, 7, 3)]
    assert session.unfinished() == []
    assert {row[2] for row in database.rows(PLAIN)} == {str(one)}


def test_what_is_prepared_outlives_its_session(database: SinkDatabase, opened: Open) -> None:
    """Any other session can commit it, or roll it back."""
    session = opened()
    epoch = session.take_over(0, 1)
    for number in (0, 1):
        prepared(session, name(epoch, number), ("a", number), checkpoint_id=None)
    session.drop()
    other = opened()
    assert other.unfinished() == [name(epoch, 0), name(epoch, 1)]
    assert other.commit(name(epoch, 0))
    assert other.abort(name(epoch, 1))
    assert other.abort(name(epoch, 1))
    assert visible(database) == [("a", 0)]
    with pytest.raises(TransactionGoneError):
        other.commit(name(epoch, 1))


def test_what_is_not_prepared_is_never_committed(database: SinkDatabase, opened: Open) -> None:
    """When its session ends it is gone, or stays to be aborted; in both cases a commit of it is refused."""
    session = opened()
    one = name(session.take_over(0, 1))
    written(session, one)
    session.drop()
    other = opened()
    for left in other.unfinished():
        assert left == one
    with pytest.raises(TransactionGoneError):
        other.commit(one)
    assert other.abort(one)
    assert other.unfinished() == []
    assert visible(database) == []


def test_what_is_prepared_takes_no_rows_any_more(database: SinkDatabase, opened: Open) -> None:
    """Its checkpoint may be complete already; preparing it again changes nothing where that is possible."""
    session = opened()
    one = name(session.take_over(0, 1))
    prepared(session, one)
    with pytest.raises(DatabaseError):
        session.write(one, [("a", 1)])
    assert session.commit(one)
    assert visible(database) == []


def test_the_abort_of_what_is_committed_is_refused(database: SinkDatabase, opened: Open) -> None:
    """The error says so, and the rows stay."""
    session = opened()
    one = name(session.take_over(0, 1))
    committed(session, one, ("a", 1))
    assert not session.abort(one)
    assert visible(database) == [("a", 1)]


def test_a_transaction_without_rows_is_committed_like_any_other(opened: Open) -> None:
    """It is in the ledger: otherwise it would look like a lost transaction."""
    session = opened()
    one = name(session.take_over(0, 1))
    prepared(session, one)
    assert session.commit(one)
    assert not opened().commit(one)
    assert session.committed() == [(one, 1, 0)]


def test_an_older_epoch_writes_and_prepares_nothing(database: SinkDatabase, opened: Open) -> None:
    """Each step of a zombie fails, whatever it had begun before."""
    zombie = opened()
    old = zombie.take_over(0, 1)
    written(zombie, name(old, 0))
    new = opened().take_over(0, 1)
    assert new > old
    with pytest.raises(DatabaseError):
        zombie.prepare(name(old, 0), 1)
    zombie.abort(name(old, 0))
    # Which step refuses first depends on the database: some begin with the first row.
    with pytest.raises(FencedError):
        written(zombie, name(old, 1))
    with pytest.raises(FencedError):
        prepared(zombie, name(old, 2))
    assert visible(database) == []


def test_who_takes_a_subtask_over_takes_over_all_with_its_number_modulo_the_parallelism(opened: Open) -> None:
    """After a change from four to two, subtask 1 fences 1 and 3, and leaves 0 and 2 alone."""
    before = [opened() for _ in range(4)]
    epochs = [session.take_over(subtask, 4) for subtask, session in enumerate(before)]
    epoch = opened().take_over(1, 2)
    for subtask, session in enumerate(before):
        one = name(epochs[subtask], subtask=subtask)
        if subtask % 2:
            with pytest.raises(FencedError):
                prepared(session, one)
        else:
            prepared(session, one)
    assert epoch > max(epochs[1], epochs[3])


def test_an_epoch_is_never_given_twice(opened: Open) -> None:
    """Another parallelism does not get it either: names of transactions contain it."""
    given = [opened().take_over(0, 2), opened().take_over(0, 1), opened().take_over(0, 3), opened().take_over(0, 2)]
    assert given == sorted(set(given))


def test_writers_do_not_see_each_other(opened: Open) -> None:
    """Two sinks with one table: each has its own transactions, ledger and epochs."""
    other = TableDescription("numbers", COLUMNS, "numbers:other", transaction_column="written_by")
    one, two = opened(), opened(other)
    first = one.take_over(0, 1)
    assert two.take_over(0, 1) == first
    of_two = name(first, writer="numbers:other")
    prepared(two, of_two)
    assert one.unfinished() == []
    two.commit(of_two)
    assert one.committed() == []
    assert [entry.name for entry in two.committed()] == [of_two]


def test_rows_of_committed_transactions_can_be_retracted(database: SinkDatabase, opened: Open) -> None:
    """Their entries are retracted, too; a late commit of a retracted transaction finds it lost."""
    session = opened()
    epoch = session.take_over(0, 1)
    for number in range(3):
        committed(session, name(epoch, number), ("a", number), ("b", number))
    assert session.retract([name(epoch, 1), name(epoch, 2)]) == 4
    assert visible(database) == [("a", 0), ("b", 0)]
    assert [entry.name for entry in session.committed()] == [name(epoch, 0)]
    with pytest.raises(TransactionGoneError):
        session.commit(name(epoch, 2))


def test_the_ledger_can_forget(database: SinkDatabase, opened: Open) -> None:
    """The rows of forgotten transactions stay."""
    session = opened()
    one = name(session.take_over(0, 1))
    committed(session, one, ("a", 1))
    session.forget([one])
    assert session.committed() == []
    assert visible(database) == [("a", 1)]


def test_values_come_back_as_they_were(database: SinkDatabase, opened: Open) -> None:
    """Text with everything that has a meaning in SQL or in COPY, numbers at their limits, nothing."""
    texts = ["", "\\N", "a\tb\nc\\", "'; DROP TABLE numbers; --", '"', "%s ? $1", "ü€😀", "{}", "NULL", "\\."]
    rows: list[tuple[Any, ...]] = [(text, at) for at, text in enumerate(texts)]
    rows += [(None, 2**63 - 1), ("low", -(2**63)), ("none", None)]
    session = opened()
    one = name(session.take_over(0, 1))
    committed(session, one, *rows)
    assert visible(database) == sorted(rows, key=repr)


# --- upserts ------------------------------------------------------------------------------------------------------


def test_upserts_insert_replace_and_delete(database: SinkDatabase, opened: Open) -> None:
    """A key finds its row, any number of times."""
    session = opened(KEYED)
    holder = EpochHolder(0, session.take_over(0, 1))
    for _ in range(2):
        session.upsert(holder, [("a", 1), ("b", 2)], [])
        session.upsert(holder, [("b", 3), ("c", 4)], [("a",), ("never",)])
        assert visible(database, KEYED) == [("b", 3), ("c", 4)]


def test_a_version_keeps_what_is_newer(database: SinkDatabase, opened: Open) -> None:
    """Older rows neither replace nor delete; the same version replaces."""
    session = opened(VERSIONED)
    holder = EpochHolder(0, session.take_over(0, 1))
    session.upsert(holder, [("a", 5), ("b", 5)], [])
    session.upsert(holder, [("a", 4), ("b", 6)], [])
    assert visible(database, VERSIONED) == [("a", 5), ("b", 6)]
    session.upsert(holder, [], [("a", 4), ("b", 6)])
    assert visible(database, VERSIONED) == [("a", 5)]


# --- configuration ------------------------------------------------------------------------------------------------


def test_a_table_that_does_not_fit_is_told(real_database: SinkDatabase) -> None:
    """The table, the column or the unique key is missing: the error names the table and says what to do."""
    absent = TableDescription("numbers", ("key", "value"), "w")
    made = TableDescription("numbers", COLUMNS, "w")
    wrong = TableDescription("numbers", ("key", "valeu"), "w")
    unkeyed = TableDescription("numbers", ("key", "value"), "w", key=("key",))
    for description, why in (
        (absent, "does not exist"), (made, ""), (wrong, "no column 'valeu'"), (unkeyed, "PRIMARY KEY or UNIQUE"),
    ):  # fmt: skip
        session = real_database.connect(description, unchanged)
        try:
            if why:
                with pytest.raises(ConfigurationError, match=f"(?s)numbers.*{why}"):
                    session.prepare_table()
            else:
                session.prepare_table()
        finally:
            session.close()


def test_descriptions_that_make_no_sense_are_refused() -> None:
    """They have no columns, one column twice, a key that is not a column, or no table."""
    for description in (
        TableDescription("t", (), "w"),
        TableDescription("t", "ab", "w"),
        TableDescription("t", ("a", "a"), "w"),
        TableDescription("t", ("a",), "w", transaction_column="a"),
        TableDescription("t", ("a",), "w", key=("b",)),
        TableDescription("t", ("a",), "w", key=("a",), version="b"),
        TableDescription("", ("a",), "w"),
    ):
        with pytest.raises(ConfigurationError):
            check_table(description)


@given(st.text(min_size=1, max_size=20), st.tuples(*[st.integers(min_value=0, max_value=10**6)] * 5))
def test_names_are_read_back(writer: str, numbers: tuple[int, int, int, int, int]) -> None:
    """Whatever a writer is called, slashes and dots too."""
    one = TransactionName(writer, *numbers)
    assert TransactionName.parse(str(one)) == one


# --- the model against the real ones ------------------------------------------------------------------------------

_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "write", "prepare", "commit", "abort", "take-over", "drop", "forget", "retract"]),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    max_size=14,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=_CALLS)
def test_the_model_does_what_the_real_ones_do(real_database: SinkDatabase, calls: list[tuple[str, int, int]]) -> None:
    """The same calls, allowed or not, end alike, and leave the same rows and the same ledger."""
    model = MemoryDatabase()
    sides = [_Side(real_database), _Side(model)]
    for kind, subtask, number in calls:
        results = [side.call(kind, subtask, number) for side in sides]
        assert results[0] == results[1], (kind, subtask, number)
    rows = [side.rows() for side in sides]
    ledgers = [side.ledger() for side in sides]
    for side in sides:
        side.wipe()
    assert rows[0] == rows[1]
    assert ledgers[0] == ledgers[1]


class _Side:
    """Two subtasks of one sink, each with a session that is replaced when it is dropped. Dropping a session rolls back
    what is not prepared, for the model may keep what others lose."""

    def __init__(self, database: SinkDatabase) -> None:
        self.database = database
        self.sessions = [self._opened(), self._opened()]
        self.first = [session.take_over(subtask, 2) for subtask, session in enumerate(self.sessions)]
        self.epochs = list(self.first)
        self.prepared: dict[TransactionName, None] = {}
        self.begun: list[TransactionName | None] = [None, None]

    def _opened(self) -> SinkSession:
        session = self.database.connect(PLAIN, unchanged)
        session.prepare_table()
        return session

    def call(self, kind: str, subtask: int, number: int) -> object:
        session, epoch = self.sessions[subtask], self.epochs[subtask]
        one = name(epoch, number, subtask)
        if kind in ("write", "prepare") and self.begun[subtask] != one:
            return "nothing to do"
        if kind == "begin" and (self.begun[subtask] is not None or one in self.prepared):
            return "not now"
        if kind == "commit" and self.begun[subtask] == one:
            return "not now"
        try:
            return self._carry_out(kind, session, one, subtask)
        except DatabaseError as error:
            return type(error)

    def _carry_out(self, kind: str, session: SinkSession, one: TransactionName, subtask: int) -> object:
        if kind == "begin":
            session.begin(one)
            self.begun[subtask] = one
        elif kind == "write":
            session.write(one, [("row", one.number)])
        elif kind == "prepare":
            session.prepare(one, one.number)
            self.prepared[one], self.begun[subtask] = None, None
        elif kind == "commit":
            return session.commit(one)
        elif kind == "abort":
            if self.begun[subtask] == one:
                self.begun[subtask] = None
            return session.abort(one)
        elif kind == "forget":
            if one in self.prepared:
                session.forget([one])
        elif kind == "retract":
            return session.retract([one])
        else:
            if kind == "drop":
                session.drop()
                session = self.sessions[subtask] = self._opened()
            self.epochs[subtask] = session.take_over(subtask, 2)
            begun, self.begun[subtask] = self.begun[subtask], None
            if begun is not None:
                session.abort(begun)
        return None

    def rows(self) -> list[tuple[Any, ...]]:
        return [(*row[:2], row[2].partition("/")[0]) for row in sorted(self.database.rows(PLAIN))]

    def ledger(self) -> list[Any]:
        session = self.sessions[0]
        entries = [(self._place(entry.name), *entry[1:]) for entry in session.committed()]
        return [entries, [self._place(one) for one in session.unfinished() if one not in self.begun]]

    def _place(self, one: TransactionName) -> tuple[int, int, int]:
        """The same for all databases, whatever the first epoch was."""
        return one.subtask, one.epoch - self.first[one.subtask], one.number

    def wipe(self) -> None:
        session = self.sessions[0]
        for one in self.begun:
            if one is not None:
                self.sessions[one.subtask].abort(one)
        for left in session.unfinished():
            session.abort(left)
        session.retract([entry.name for entry in session.committed()])
        for subtask, (first, last) in enumerate(zip(self.first, self.epochs, strict=True)):
            # Rows that the ledger has forgotten, too.
            epochs = range(first, last + 1)
            session.retract([name(epoch, number, subtask) for epoch in epochs for number in range(3)])
        for one_session in self.sessions:
            one_session.close()
