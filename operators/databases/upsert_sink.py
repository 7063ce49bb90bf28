"""Sinks that keep one row per key in a table: each record replaces the row of its key, or deletes it.

No transaction waits for a checkpoint. The sink writes rows in batches, and the rest before it acknowledges the
checkpoint. So the table has everything that a completed checkpoint covers. After a failure the sink gets and writes the
records after the last checkpoint again. The final result stays the same: **each record at least once, each key exactly
once**. The cost, compared with two-phase commit:

* Readers see records before their checkpoint has completed.
* After a restore a row may go back to an older value for a while, until the newer record has come again. A ``version``
  column prevents this: rows of an older version change nothing. The version of a key must only grow; a sequence number
  or an event time will do. Each record must have a version; a row of the table without one counts as older than any. A
  deleted row leaves no version: an older record that comes again inserts the row again, until the deletion comes again,
  too.
* All records of a key must come from one subtask, the record that must win last. So key the stream by the same columns.
  A replay must give a key the same last record, so the job must be deterministic for each key.

Source: the upsert mode of Flink's JDBC connector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.operator import Operator
from operators.basic import SinkOperator, apply_to_all
from operators.databases.database_session import EpochHolder, Row, SinkDatabase
from operators.databases.records_to_rows import RowFunction
from operators.databases.table_sink import Columns, TableSink, TableWriter, check_function


class UpsertSink(TableSink):
    """Describes a sink into a table with one row per key.

    ``database``           a ``SqliteDatabase`` or ``PostgresDatabase``;
    ``columns``            their names, or a mapping of names to SQL types, which creates the table if it is missing;
    ``key``                the columns that identify a row; they need a primary key or a unique constraint;
    ``writer``             distinguishes this sink from others on the table, by default the operator's uid;
    ``version``            a column that only grows for each key: older rows change nothing; ``None`` = the last wins;
    ``delete``             whether a record deletes the row of its key; by default none does;
    ``row``                turns a record into a row, deletions too; by default a dict, tuple or list is a row;
    ``batch_rows``         how many keys are written at a time;
    ``flush_interval_ms``  virtual time after which even a few rows are written, ``None`` = at the latest with the
                           checkpoint;
    ``request_ns``         virtual time that each batch takes.
    """

    name = "upsert-sink"
    delivery = "exactly-once-per-key"

    def __init__(
        self,
        database: SinkDatabase,
        table: str,
        columns: Columns,
        *,
        key: Sequence[str],
        writer: str | None = None,
        version: str | None = None,
        delete: Callable[[Any], bool] | None = None,
        row: RowFunction | None = None,
        batch_rows: int = 1_000,
        flush_interval_ms: int | None = None,
        request_ns: int = 0,
    ) -> None:
        named: object = key
        if isinstance(named, str) or not isinstance(named, Sequence) or not named:
            raise ConfigurationError(f"key must name one column or more, in a tuple; got {key!r}")
        check_function("delete", delete)
        check_whole("flush_interval_ms", flush_interval_ms, or_none=True)
        self.key_columns, self.version, self.delete = tuple(key), version, delete
        self.flush_interval_ms = flush_interval_ms
        super().__init__(database, table, columns, row=row, writer=writer, batch_rows=batch_rows, request_ns=request_ns)

    def create_operator(self) -> Operator:
        return UpsertSinkOperator(self)

    def committed_rows(self) -> list[str]:
        """The rows of the table as text, sorted: the order of replacements has no meaning."""
        return sorted(super().committed_rows())


class UpsertSinkOperator(SinkOperator):
    """Holds back the last row of each key."""

    spends_per_batch = True

    def __init__(self, spec: UpsertSink) -> None:
        self._spec = spec
        self.one_process = spec.one_process
        names = tuple(spec.columns)
        self._of_key = [names.index(name) for name in spec.key_columns]
        self._of_version = None if spec.version is None else names.index(spec.version)
        self._table = TableWriter(spec, self)
        self._waiting: dict[Row, tuple[Row, bool]] = {}
        """By key: the row that wins, and whether it deletes."""

    def open(self) -> None:
        """Connect, and fence earlier writers: late writes of a zombie would replace newer rows."""
        self._table.take_over()
        self._holder = EpochHolder(self.context.subtask, self._table.epoch)
        self._arm_timer()

    def _arm_timer(self) -> None:
        if self._spec.flush_interval_ms is not None:
            self.context.register_processing_timer(self.context.processing_time_ms() + self._spec.flush_interval_ms)

    def on_processing_time(self, time_ms: int) -> None:
        self._flush()
        self._arm_timer()

    def process_batch(self, batch: Batch) -> None:
        """Later records of a key replace earlier ones before anything is written."""
        rows = self._table.rows(batch)
        for record, row, deletes in zip(batch.values, rows, self._deletes(batch.values), strict=True):
            key = tuple([row[at] for at in self._of_key])
            try:
                wins = self._wins(key, row)
            except (TypeError, ValueError) as error:
                raise self.user_error("row function", record, error) from error
            if wins:
                self._waiting[key] = (row, deletes)
                if len(self._waiting) >= self._spec.batch_rows:
                    self._flush()
        if self.context.publish_at_once:
            self._flush()

    def _deletes(self, records: list[Any]) -> list[bool]:
        delete = self._spec.delete
        if delete is None:
            return [False] * len(records)
        return apply_to_all(self, "delete function", lambda record: bool(delete(record)), records)

    def _wins(self, key: Row, row: Row) -> bool:
        """Whether ``row`` replaces the waiting row of this key. Raises :class:`TypeError` for a key or version that
        cannot be compared, and :class:`ValueError` for one that is ``None``."""
        if None in key:
            raise ValueError(f"a column of the key ({', '.join(self._spec.key_columns)}) is None")
        waiting, at = self._waiting.get(key), self._of_version
        if at is None:
            return True
        if row[at] is None:
            raise ValueError(f"the version ({self._spec.version}) is None: nothing could tell whether it is newer")
        return waiting is None or bool(row[at] >= waiting[0][at])

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows, deleted = [], []
        for key, (row, deletes) in self._waiting.items():
            if not deletes:
                rows.append(row)
            else:
                deleted.append(key if self._of_version is None else (*key, row[self._of_version]))
        self._table.session.upsert(self._holder, rows, deleted)
        self._waiting = {}
        self._table.spend()

    def snapshot_state(self, checkpoint_id: int) -> None:
        """No state: everything that the checkpoint covers is in the table before it is acknowledged."""
        self._flush()

    def finish(self) -> None:
        self._flush()

    def close(self) -> None:
        """Drop the waiting rows: they came after the last checkpoint, and come again."""
        self._table.close()

    def abandon(self) -> None:
        self._table.drop()

    def fingerprint(self) -> object:
        return repr(list(self._waiting.items()))
