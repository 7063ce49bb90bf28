"""The sink into a transactional log (Flink: ``KafkaSink``), in three guarantees.

``exactly-once``   transactions, committed when their checkpoint has completed: see
                   :mod:`operators.transactions.two_phase_commit`;
``at-least-once``  the sink writes records as they come and waits for every answer. Records are repeated after a
                   failure, and after a request that was carried out but whose answer was lost;
``none``           the sink writes records as they come and does not wait for answers: records may also be lost.

The rules of transactions are in :mod:`operators.log.connectors.transactional_log_sink`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.operator import Operator, OperatorContext, OperatorMetrics
from operators.log.connectors.plain_log_sink import PlainLogSink
from operators.log.connectors.transactional_log_sink import TransactionalLogSink
from operators.log.disk import DiskLog, DiskTransactionLog, check_name, committed_records
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port import (
    COMMIT_MARKER,
    DATA,
    DEFAULT_MAX_TIMEOUT_NS,
    DELIVERIES,
    EXACTLY_ONCE,
    LogEntry,
    PartitionFunction,
    Producer,
    TransactionCoordinator,
    TransactionLog,
    TransactionLogError,
)
from operators.transactions import check_timeouts
from state_backends.files import FileSystem


class LogSink:
    """Describes a sink into a topic of a log.

    ``log``          a :class:`~operators.log.disk.DiskLog`, or one in memory; ``None`` = one in memory of its own,
                     which is gone when the process ends;
    ``partitions``   of the topic, which the sink creates if it does not exist;
    ``partition``    chooses the partition of a record; by default a subtask writes to its own number, modulo;
    ``value``        ``record -> value``: what the log gets; by default the record itself;
    ``retries``      how often the sink repeats a request without an answer before the task fails;
    ``transactional_id_prefix``  replaces the uid, if another run of the same job writes to the same log;
    ``existing``     what a run does that finds records which another run has committed under its names: ``"fail"``, or
                     ``"append"`` after them; only exactly-once sinks can tell;
    ``transaction_timeout_ns``, ``timeout_warning_ratio``, ``ignore_failures_after_transaction_timeout``: see
    :mod:`operators.transactions.two_phase_commit`; ``newer_commits``: see the rules of transactions.
    """

    name = "log-sink"

    def __init__(
        self,
        topic: str = "out",
        *,
        log: TransactionLog | DiskLog | None = None,
        partitions: int = 1,
        partition: PartitionFunction | None = None,
        value: Callable[[Any], Any] | None = None,
        delivery: str = EXACTLY_ONCE,
        transaction_timeout_ns: int = DEFAULT_MAX_TIMEOUT_NS,
        timeout_warning_ratio: float | None = None,
        ignore_failures_after_transaction_timeout: bool = False,
        existing: str = "fail",
        newer_commits: str = "fail",
        retries: int = 2,
        transactional_id_prefix: str | None = None,
    ) -> None:
        if delivery not in DELIVERIES:
            raise ConfigurationError(f"delivery is {delivery!r}; it must be one of {', '.join(DELIVERIES)}")
        if existing not in ("fail", "append"):
            raise ConfigurationError(f"existing is {existing!r}; it must be 'fail' or 'append'")
        if newer_commits not in ("fail", "report"):
            raise ConfigurationError(f"newer_commits is {newer_commits!r}; it must be 'fail' or 'report'")
        check_whole("retries", retries, 0)
        if type(topic) is not str or not topic:
            raise ConfigurationError(f"topic is {topic!r}; it must be a name")
        check_whole("partitions", partitions)
        if partition is not None and not callable(partition):
            raise ConfigurationError(
                f"partition is {partition!r}; it must be a function of a record and the number of partitions, or None"
            )
        if transactional_id_prefix is not None and (not transactional_id_prefix or "/" in transactional_id_prefix):
            raise ConfigurationError(f"transactional_id_prefix is {transactional_id_prefix!r}: a name without '/'")
        check_timeouts(transaction_timeout_ns, timeout_warning_ratio)
        self.prefix = transactional_id_prefix
        self.topic, self.partitions, self.partition, self.value = topic, partitions, partition, value
        self.parallelism: int | None = None
        """How many subtasks there must be, ``None`` = as the job says."""
        self.delivery, self.retries = delivery, retries
        self.existing, self.newer_commits = existing, newer_commits
        self.transaction_timeout_ns, self.timeout_warning_ratio = transaction_timeout_ns, timeout_warning_ratio
        self.ignores_timeouts = ignore_failures_after_transaction_timeout
        if log is not None and not hasattr(log, "create_topic") and not isinstance(log, DiskLog):
            raise ConfigurationError(f"log is {log!r}; for a log in files give log=DiskLog('path')")
        self.log: TransactionLog | DiskLog = MemoryTransactionLog() if log is None else log
        if isinstance(self.log, DiskLog):
            check_name("topic", topic)
        else:
            self.log.create_topic(topic, partitions)
        self._world: tuple[FileSystem, str] | None = None
        """In a simulation: the file system and the output directory of a log on disk."""
        self._rows: list[_CommittedRows] | None = None
        """Of a log in memory, by partition."""

    def create_operator(self) -> Operator:
        return TransactionalLogSink(self) if self.delivery == EXACTLY_ONCE else PlainLogSink(self)

    def fresh(self) -> LogSink:
        """A copy with its own log in memory, or with the same log on disk, not yet open."""
        other = copy(self)
        other._world = other._rows = None
        if isinstance(self.log, DiskLog):
            other.log = self.log.fresh()
        else:
            other.log = MemoryTransactionLog(max_timeout_ns=max(self.transaction_timeout_ns, DEFAULT_MAX_TIMEOUT_NS))
            other.log.create_topic(self.topic, self.partitions)
        return other

    def attach(self, context: OperatorContext) -> TransactionLog:
        """The log, open, with the topic in it. Each call needs one :meth:`detach`."""
        if not isinstance(self.log, DiskLog):
            return self.log
        log = self.log.acquire(context)
        try:
            log.create_topic(self.topic, self.partitions)
        except BaseException:
            self.log.abandon(log)
            raise
        return log

    def detach(self, log: TransactionLog, metrics: OperatorMetrics, *, is_dead: bool = False) -> None:
        """Release the log from :meth:`attach`. ``is_dead``: as the death of the process does."""
        if not isinstance(self.log, DiskLog):
            return
        assert isinstance(log, DiskTransactionLog), "as attach gave it"
        if is_dead:
            self.log.abandon(log)
            return
        try:
            self.log.release(log)
        except TransactionLogError:
            # All promised records are durable. Only the snapshot is missing, which would shorten the next recovery.
            metrics.count("numLogsNotClosed")

    def share_in_job(self, shared: dict[str, Any]) -> None:
        """Sinks of one job whose logs have the same path share one log, since only one can be open for writing. Raises
        :class:`ConfigurationError` when their settings differ."""
        log = self.log
        if not isinstance(log, DiskLog):
            return
        self.log = first = shared.setdefault(posixpath.normpath(log.path), log)
        if first.settings != log.settings:
            raise ConfigurationError(
                f"two sinks of the job write to log {log.path!r}, and their settings of it differ\n"
                "  fix: make one DiskLog object, and give it to both"
            )

    def live_in(self, files: FileSystem, output_dir: str, logs: dict[str, DiskLog]) -> None:
        """Take part in a simulation. Rows of a log on disk are read from these files, even while a sink writes to it.
        ``logs`` are the logs of the simulation by path: sinks that share a log share its writer."""
        if isinstance(self.log, DiskLog):
            self.log = logs.setdefault(self.log.path, self.log)
            self.log.keeps_history = True
            self._world = (files, output_dir)

    @property
    def log_outlives_runs(self) -> bool:
        """Whether a run may find what another one has written."""
        return isinstance(self.log, DiskLog)

    @property
    def one_process(self) -> str | None:
        """See :class:`engine.elements.operator.Operator`."""
        if not isinstance(self.log, TransactionCoordinator):
            return None
        return "writes to a log in the memory of one process: give it log=DiskLog('path')"

    @property
    def writes_alone(self) -> tuple[str, ...]:
        """The directory of a log on disk: see :class:`engine.elements.operator.Operator`."""
        return (self.log.path,) if isinstance(self.log, DiskLog) else ()

    @property
    def place(self) -> tuple[FileSystem, str] | None:
        """The file system and the directory of a log on disk in a simulation."""
        if self._world is None or not isinstance(self.log, DiskLog):
            return None
        files, output_dir = self._world
        return files, posixpath.join(output_dir, self.log.path)

    def committed_rows(self) -> list[str]:
        """The committed records as text, partition by partition, in the order of offsets. An open transaction does not
        hide the records after it, because it will end some day."""
        log, topic = self.log, self.topic
        if isinstance(log, DiskLog):
            if self.place is None:
                raise ConfigurationError(f"the rows of topic {topic!r} are in log {log.path!r}: read its files")
            by_partition = committed_records(*self.place, topic, waits=False)
            return [repr(record.value) for records in by_partition for record in records]
        if not isinstance(log, MemoryTransactionLog):
            return [repr(record.value) for number in range(self.partitions) for record in log.read(topic, number)]
        if self._rows is None:
            self._rows = [_CommittedRows() for _ in range(self.partitions)]
        return [row for number, rows in enumerate(self._rows) for row in rows.of(log.entries(topic, number))]


class _CommittedRows:
    """The committed records of a partition in memory, as text. It only grows, and observers look at it more often."""

    def __init__(self) -> None:
        self._count = 0
        """So many entries were read."""
        self._committed: set[Producer | None] = {None}
        self._waiting: dict[Producer | None, list[tuple[int, object]]] = {}
        """Records without a marker so far, with their offsets."""
        self._by_offset: dict[int, str] = {}
        self._rows: list[str] = []

    def of(self, entries: Sequence[LogEntry]) -> list[str]:
        """Those among all its entries."""
        rest, self._count = entries[self._count :], len(entries)
        waiting, committed, known = self._waiting, self._committed, self._by_offset
        for offset, kind, producer, value in rest:
            if kind == DATA:
                waiting.setdefault(producer, []).append((offset, value))
            elif kind == COMMIT_MARKER:
                committed.add(producer)
        for producer in [one for one in waiting if one in committed]:
            known.update([(offset, repr(value)) for offset, value in waiting.pop(producer)])
        if len(known) > len(self._rows):
            self._rows = [known[offset] for offset in sorted(known)]
        return self._rows
