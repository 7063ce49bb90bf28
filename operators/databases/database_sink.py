"""Sinks that insert rows into a table of a database, exactly once, by two-phase commit.

The protocol is that of :mod:`operators.transactions.two_phase_commit`; the duties of the database are in
:mod:`operators.databases.database_session`. The sink combines both:

* Each start first takes over: from then on no earlier attempt can write or prepare. Then the sink decides their
  transactions. Each subtask aborts those that no state contains, of all subtasks with its own number modulo the
  parallelism.
* A start without state may find committed transactions under its name. They are *another run's*: this one has no
  completed checkpoint. The sink refuses (``existing="fail"``), or keeps only the rows (``"append"``).
* If newer checkpoints are unreadable, a restore may find their transactions, whose rows will come again. It refuses
  (``newer_commits="fail"``), counts them in ``numTransactionsPublishedAgain`` (``"report"``), or deletes them
  (``"retract"``, ``numCommittedRecordsRetracted``). It can find their rows only by ``transaction_column``, because
  neither row ids nor the database's own transaction numbers are stable.
* The sink waits until it has ``batch_rows``; a checkpoint sends the rest. Batch ends have no meaning.
* Without checkpoints everything is committed at the end of the input. If another subtask fails after that, a restarted
  subtask commits its rows again; that is counted in ``numTransactionsPublishedAgain``.
* The ledger keeps the last ``ledger_checkpoints`` checkpoints of each subtask; with ``"retract"`` it keeps all. It also
  keeps the pending transactions in the newest state, which may be older if their notifications came late. A restore
  commits them again, and must find out that they are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, OutputAheadError, check_whole
from engine.elements.operator import Operator
from operators.databases.database_session import DatabaseError, Row, SinkDatabase, TransactionGoneError, TransactionName
from operators.databases.memory_database import MemoryDatabase
from operators.databases.postgres_database import PostgresDatabase
from operators.databases.records_to_rows import RowFunction
from operators.databases.sqlite_database import SqliteDatabase
from operators.databases.table_sink import Columns, TableSink, TableWriter
from operators.transactions import Transaction, TransactionLostError, TwoPhaseCommitSinkOperator, check_timeouts
from state_backends.base import row, such_that, text


class DatabaseSink(TableSink):
    """Describes a sink into a table.

    ``columns``             their names, or a mapping of names to SQL types, which creates the table if it is missing;
    ``row``                 turns a record into a row; by default a dict, tuple or list is a row;
    ``writer``              distinguishes this sink from others on the same table, by default the operator's uid;
    ``transaction_column``  a column of text for the name of each row's transaction;
    ``existing``, ``newer_commits``, ``ledger_checkpoints``: see the module;
    ``batch_rows``          how many rows are written at a time;
    ``request_ns``          virtual time that each batch, pre-commit and commit takes;
    ``transaction_timeout_ns``, ``timeout_warning_ratio``, ``ignore_failures_after_transaction_timeout``: see
    :mod:`operators.transactions.two_phase_commit`. Databases abort no transaction by themselves; administrators do.
    """

    name = "database-sink"
    delivery = "exactly-once"

    def __init__(
        self,
        database: SinkDatabase,
        table: str,
        columns: Columns,
        *,
        row: RowFunction | None = None,
        writer: str | None = None,
        transaction_column: str | None = None,
        existing: str = "fail",
        newer_commits: str = "fail",
        ledger_checkpoints: int | None = 10_000,
        batch_rows: int = 1_000,
        request_ns: int = 0,
        transaction_timeout_ns: int | None = None,
        timeout_warning_ratio: float | None = None,
        ignore_failures_after_transaction_timeout: bool = False,
    ) -> None:
        if existing not in ("fail", "append"):
            raise ConfigurationError(f"existing is {existing!r}; it must be 'fail' or 'append'")
        if newer_commits not in ("fail", "report", "retract"):
            raise ConfigurationError(f"newer_commits is {newer_commits!r}; it must be 'fail', 'report' or 'retract'")
        if newer_commits == "retract" and transaction_column is None:
            raise ConfigurationError("newer_commits='retract' needs a transaction_column, to find the rows again by")
        check_whole("ledger_checkpoints", ledger_checkpoints, or_none=True)
        check_timeouts(transaction_timeout_ns, timeout_warning_ratio)
        self.transaction_column, self.existing, self.newer_commits = transaction_column, existing, newer_commits
        self.ledger_checkpoints = ledger_checkpoints
        self.transaction_timeout_ns, self.timeout_warning_ratio = transaction_timeout_ns, timeout_warning_ratio
        self.ignores_timeouts = ignore_failures_after_transaction_timeout
        super().__init__(database, table, columns, row=row, writer=writer, batch_rows=batch_rows, request_ns=request_ns)

    def create_operator(self) -> Operator:
        return DatabaseSinkOperator(self)

    def transactions(self) -> list[tuple[int, int]]:
        """Subtask and checkpoint of each transaction in a ledger in memory, in the order of commits."""
        return self.database.commits() if isinstance(self.database, MemoryDatabase) else []


class SqliteSink(DatabaseSink):
    """A :class:`DatabaseSink` into a file of SQLite; ``path`` is relative to the output directory of the run."""

    name = "sqlite-sink"

    def __init__(
        self,
        path: str,
        table: str,
        columns: Columns,
        *,
        busy_timeout_ms: int = 10_000,
        journal_mode: str | None = "wal",
        **options: Any,
    ) -> None:
        database = SqliteDatabase(path, busy_timeout_ms=busy_timeout_ms, journal_mode=journal_mode)
        super().__init__(database, table, columns, **options)


class PostgresSink(DatabaseSink):
    """A :class:`DatabaseSink` into PostgreSQL; ``dsn`` says how to reach it, as for libpq."""

    name = "postgres-sink"

    def __init__(self, dsn: str | PostgresDatabase, table: str, columns: Columns, **options: Any) -> None:
        database = dsn if isinstance(dsn, PostgresDatabase) else PostgresDatabase(dsn)
        super().__init__(database, table, columns, **options)


class DatabaseSinkOperator(TwoPhaseCommitSinkOperator):
    """A transaction is ``(its name as text,)``."""

    spends_per_batch = True
    transaction_shape = staticmethod(row(such_that("the name of a transaction", text, TransactionName.is_one)))

    def __init__(self, spec: DatabaseSink) -> None:
        super().__init__(
            transaction_timeout_ns=spec.transaction_timeout_ns,
            timeout_warning_ratio=spec.timeout_warning_ratio,
            ignore_failures_after_transaction_timeout=spec.ignores_timeouts,
        )
        self._spec = spec
        self.one_process = spec.one_process
        self._table = TableWriter(spec, self)
        self._rows: list[Row] = []
        """Rows not sent to the database yet."""
        self._number = 0
        self._older_pending: dict[int, int] = {}
        """By checkpoint: the oldest checkpoint with a pending transaction in its state, if that is an older one."""
        self._completed_id = 0

    # --- recovery -----------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Take over, check the commits of earlier attempts, then commit and abort."""
        self._writer = self._table.take_over().writer
        restored = self.context.restored_checkpoint_id()
        if restored is None:
            self._check_nothing_is_there()
        else:
            self._check_newer_commits(restored)
        super().initialize_state()

    def _is_mine(self, name: TransactionName) -> bool:
        return name.subtask % self.context.parallelism == self.context.subtask and name.epoch < self._table.epoch

    def _check_nothing_is_there(self) -> None:
        others = [one for one in self._table.session.committed() if self._is_mine(one.name)]
        if not others:
            return
        context = self.context
        is_ours = not context.checkpointing_enabled and (context.incarnation, context.attempt) != (1, 1)
        if self._spec.existing == "append" or is_ours:
            self._table.session.forget([one.name for one in others])
            if is_ours:
                context.metrics.count("numTransactionsPublishedAgain", len(others))
            return
        rows = sum(one.rows for one in others)
        raise OutputAheadError(
            f"sink {self.context.name!r} starts from nothing, but {rows} rows of {len(others)} transactions of another"
            f" run are committed in {self._table.session.place}, such as {others[-1].name}\n"
            "  fix: resume that run; or empty the table together with weir_transactions; or set another writer=, or"
            " existing='append' to leave them where they are"
        )

    def _check_newer_commits(self, restored: int) -> None:
        newer = [
            one
            for one in self._table.session.committed()
            if self._is_mine(one.name) and one.checkpoint_id is not None and one.checkpoint_id > restored
        ]
        if not newer:
            return
        metrics, policy = self.context.metrics, self._spec.newer_commits
        if policy == "report":
            metrics.count("numTransactionsPublishedAgain", len(newer))
        elif policy == "retract":
            retracted = self._table.session.retract([one.name for one in newer])
            metrics.count("numCommittedRecordsRetracted", retracted)
        else:
            newest = max(newer, key=lambda one: one.checkpoint_id or 0)
            raise OutputAheadError(
                f"sink {self.context.name!r} starts from checkpoint {restored}, but transaction {newest.name} of"
                f" checkpoint {newest.checkpoint_id} is committed in {self._table.session.place} already: its rows"
                " would appear twice\n"
                f"  fix: start from checkpoint {newest.checkpoint_id} or a newer one; or have rows carry the name of"
                " their transaction (transaction_column=) and set newer_commits='retract', which takes them back; or"
                " set newer_commits='report'"
            )

    def abort_lingering(self, spared: Sequence[Transaction]) -> None:
        names = {transaction[0] for transaction in spared}
        for name in self._table.session.unfinished():
            if self._is_mine(name) and str(name) not in names:
                self._table.session.abort(name)
                self.context.metrics.count("numLingeringTransactionsAborted")

    # --- transactions -------------------------------------------------------------------------------------

    def begin(self) -> Transaction:
        context = self.context
        name = TransactionName(
            self._writer, context.subtask, self._table.epoch, context.incarnation, context.attempt, self._number
        )
        self._number += 1
        self._table.session.begin(name)
        return (str(name),)

    def invoke(self, transaction: Transaction, batch: Batch) -> None:
        self._rows += self._table.rows(batch)
        if len(self._rows) >= self._spec.batch_rows:
            self._send(transaction)

    def _send(self, transaction: Transaction) -> None:
        if self._rows:
            self._table.session.write(TransactionName.parse(transaction[0]), self._rows)
            self._rows = []
            self._table.spend()

    def pre_commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        self._send(transaction)
        self._table.session.prepare(TransactionName.parse(transaction[0]), checkpoint_id)
        self._table.spend()

    def commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        try:
            self._table.session.commit(TransactionName.parse(transaction[0]))
        except TransactionGoneError as error:
            raise TransactionLostError(str(error)) from error
        self._table.spend()

    def abort(self, transaction: Transaction) -> None:
        self._table.session.abort(TransactionName.parse(transaction[0]))

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        if self._pending and self._pending[0][0] < checkpoint_id:
            self._older_pending[checkpoint_id] = self._pending[0][0]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        super().notify_checkpoint_complete(checkpoint_id)
        if checkpoint_id <= self._completed_id:
            return
        self._completed_id = checkpoint_id
        oldest = self._older_pending.get(checkpoint_id, checkpoint_id)
        self._older_pending = {one: first for one, first in self._older_pending.items() if one > checkpoint_id}
        self._shorten_ledger(checkpoint_id, oldest)

    def _shorten_ledger(self, checkpoint_id: int, oldest: int) -> None:
        kept = self._spec.ledger_checkpoints
        if kept is None or checkpoint_id % kept or self._spec.newer_commits == "retract":
            return
        newest_forgotten = min(checkpoint_id - kept, oldest - 1)
        old = [
            one.name
            for one in self._table.session.committed()
            if one.name.subtask % self.context.parallelism == self.context.subtask
            and one.checkpoint_id is not None
            and one.checkpoint_id <= newest_forgotten
        ]
        if old:
            self._table.session.forget(old)

    def close(self) -> None:
        """Abort the current transaction, if the database can be reached, and disconnect."""
        if not self._table.is_connected:
            return
        try:
            super().close()
        except DatabaseError:
            # The next attempt aborts it.
            self.context.metrics.count("numAbortsFailed")
        finally:
            self._table.close()

    def abandon(self) -> None:
        """Connections break; rows held back are lost."""
        self._table.drop()

    def fingerprint(self) -> object:
        known = super().fingerprint(), repr(self._rows), self._table.epoch, self._number
        return (*known, sorted(self._older_pending.items())) if self._older_pending else known
