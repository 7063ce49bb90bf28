"""The sink into a transactional log (Flink: ``KafkaSink``), in three guarantees.

``exactly-once``   transactions, committed when their checkpoint has completed: see
                   :mod:`operators.transactions.two_phase_commit`;
``at-least-once``  the sink writes records as they come and waits for every answer. Records are repeated after a
                   failure, and after a request that was carried out but whose answer was lost;
``none``           the sink writes records as they come and does not wait for answers: records may also be lost.

Transactional ids are ``{uid or prefix}/{subtask}/{incarnation}.{attempt}/{slot}``. Each attempt has its own names, so
a zombie can never take a name from its successor. Each unfinished transaction of an attempt has its own slot, which is
free again after the commit. The successor of a subtask takes over *all* names of older attempts, except those
pre-committed in the checkpoint it starts from. This fences zombies. After a change of parallelism, a name belongs to
the subtask whose number is the name's modulo the new parallelism (as in Flink).

Each commit stores the number of its checkpoint in the log. If a restore finds a higher number than its own, it would
publish the same records again, and a log cannot take records back. By default the sink refuses the restore
(``newer_commits="fail"``), because the newer checkpoint may be unreadable only for a moment. With ``"report"`` it
counts them in ``numTransactionsPublishedAgain``. It never skips records.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, OutputAheadError, check_whole
from engine.elements.operator import Operator, OperatorContext, OperatorMetrics
from operators.log.connectors.plain_log_sink import PlainLogSink
from operators.log.disk import DiskLog, DiskTransactionLog, check_name, committed_records
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port import (
    COMMIT_MARKER,
    DATA,
    DEFAULT_MAX_TIMEOUT_NS,
    DELIVERIES,
    EXACTLY_ONCE,
    InvalidTransactionError,
    LogEntry,
    LogTransactionGoneError,
    PartitionFunction,
    Producer,
    Requests,
    TransactionCoordinator,
    TransactionDescription,
    TransactionLog,
    TransactionLogError,
)
from operators.transactions import Transaction, TransactionLostError, TwoPhaseCommitSinkOperator, check_timeouts
from state_backends.base import row, text, whole
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
    ``transaction_timeout_ns``, ``timeout_warning_ratio``, ``ignore_failures_after_transaction_timeout``: see
    :mod:`operators.transactions.two_phase_commit`; ``newer_commits``: see the module.
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
        newer_commits: str = "fail",
        retries: int = 2,
        transactional_id_prefix: str | None = None,
    ) -> None:
        if delivery not in DELIVERIES:
            raise ConfigurationError(f"delivery is {delivery!r}; it must be one of {', '.join(DELIVERIES)}")
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
        self.delivery, self.retries, self.newer_commits = delivery, retries, newer_commits
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

    def live_in(self, files: FileSystem, output_dir: str, logs: dict[str, DiskLog]) -> None:
        """Take part in a simulation. Rows of a log on disk are read from these files, even while a sink writes to it.
        ``logs`` are the logs of the simulation by path: sinks that share a log share its writer."""
        if isinstance(self.log, DiskLog):
            self.log = logs.setdefault(self.log.path, self.log)
            self.log.keeps_history = True
            self._world = (files, output_dir)

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


_new_tuple = tuple.__new__


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


class TransactionalLogSink(TwoPhaseCommitSinkOperator):
    """A transaction is ``(transactional id, epoch)``."""

    transaction_shape = staticmethod(row(text, whole))

    def __init__(self, spec: LogSink) -> None:
        super().__init__(
            transaction_timeout_ns=spec.transaction_timeout_ns,
            timeout_warning_ratio=spec.timeout_warning_ratio,
            ignore_failures_after_transaction_timeout=spec.ignores_timeouts,
        )
        self._spec = spec
        self.one_process, self.writes_alone = spec.one_process, spec.writes_alone
        self._attached: TransactionLog | None = None
        self._requests = Requests(spec, self)
        self._written: dict[int, int] = {}
        """Number of records in the current transaction, by partition."""
        self._idle: dict[str, Producer] = {}
        """Names whose transaction is committed."""
        self._recovered: list[str] = []
        """Names of older attempts whose transaction was committed just now."""

    @property
    def _log(self) -> TransactionLog:
        assert self._attached is not None, "the log is used before initialize_state, or after close"
        return self._attached

    def _now_ns(self) -> int:
        return self.context.processing_time_ns()

    # --- names --------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return self._spec.prefix or self.context.uid

    @property
    def _attempt(self) -> tuple[int, int]:
        return self.context.incarnation, self.context.attempt

    def _free_name(self) -> str:
        context, slot = self.context, 0
        taken = {transaction[0] for _, transaction, _ in self._pending}
        stem = f"{self._prefix}/{context.subtask}/{context.incarnation}.{context.attempt}"
        while f"{stem}/{slot}" in taken:
            slot += 1
        return f"{stem}/{slot}"

    def _mine_of_earlier(self) -> list[TransactionDescription]:
        """The transactional ids of earlier attempts that this subtask is responsible for."""
        context, prefix = self.context, f"{self._prefix}/"
        mine = []
        for found in self._requests.ask(self._log.transactions, prefix, self._now_ns()):
            subtask, attempt, _ = found.producer.transactional_id.removeprefix(prefix).split("/")
            incarnation, _, number = attempt.partition(".")
            if int(subtask) % context.parallelism == context.subtask and (
                (int(incarnation), int(number)) < self._attempt
            ):
                mine.append(found)
        return mine

    # --- recovery -----------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        self._attached = self._spec.attach(self.context)
        self._check_newer_commits()
        super().initialize_state()

    def _check_newer_commits(self) -> None:
        restored = self.context.restored_checkpoint_id()
        if restored is None:
            return
        newer = [one for one in self._mine_of_earlier() if one.newest_note is not None and one.newest_note > restored]
        if not newer:
            return
        if self._spec.newer_commits == "report":
            self.context.metrics.count("numTransactionsPublishedAgain", len(newer))
            return
        newest = max(newer, key=lambda one: one.newest_note or 0)
        raise OutputAheadError(
            f"sink {self.context.name!r} starts from checkpoint {restored}, but transaction {newest.producer} of"
            f" checkpoint {newest.newest_note} is committed in the log already: its records would appear twice\n"
            f"  fix: start from checkpoint {newest.newest_note} or a newer one; to start from an older one all the"
            " same, give the sink another uid and topic, or set newer_commits='report'; if another run of the job wrote"
            " to this log before, give each run a transactional_id_prefix of its own"
        )

    def abort_lingering(self, spared: Sequence[Transaction]) -> None:
        names = {transaction[0] for transaction in spared}
        earlier = [found.producer.transactional_id for found in self._mine_of_earlier()]
        lingering = [*self._recovered, *(name for name in earlier if name not in names)]
        self._recovered = []
        with self._log.together():
            # Fence ids without an open transaction, too: a zombie between two transactions must not begin another one.
            # Spared ids are fenced when their pre-committed transaction is committed.
            for name in dict.fromkeys(lingering):
                self._fence(name)

    def _fence(self, name: str) -> None:
        self._init(name)
        self.context.metrics.count("numTransactionalIdsFenced")

    def _init(self, name: str) -> Producer:
        timeout_ns = self._spec.transaction_timeout_ns
        return self._requests.ask(self._log.init_transactions, name, timeout_ns, self._now_ns())

    # --- transactions -------------------------------------------------------------------------------------

    def begin(self) -> Transaction:
        name = self._free_name()
        producer = self._idle.pop(name, None) or self._init(name)
        self._requests.ask(self._log.begin, producer, self._now_ns())
        self._written = {}
        return tuple(producer)

    def invoke(self, transaction: Transaction, batch: Batch) -> None:
        topic, now_ns, append, written = self._spec.topic, self._now_ns(), self._log.append, self._written
        producer = _new_tuple(Producer, transaction)
        for number, values in self._requests.by_partition(batch).items():
            sequence = written.get(number, 0)
            self._requests.ask(append, producer, topic, number, values, sequence, now_ns)
            written[number] = sequence + len(values)

    def pre_commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        producer = Producer(*transaction)
        # Prepared only: the checkpoint may still fail (mutant "log committed on barrier").
        self._requests.ask(self._log.prepare, producer, self._now_ns(), checkpoint_id)

    def commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        following = self._commit(transaction, checkpoint_id)
        self._idle[following.transactional_id] = following

    def recover_and_commit(self, transaction: Transaction, checkpoint_id: int) -> None:
        # The name belongs to an earlier attempt, which may have begun another transaction after this one, or whose
        # zombie may be about to. So the name is fenced together with the lingering names.
        self._commit(transaction, checkpoint_id)
        self._recovered.append(transaction[0])

    def _commit(self, transaction: Transaction, checkpoint_id: int | None) -> Producer:
        producer = Producer(*transaction)
        try:
            return self._requests.ask(self._log.commit, producer, self._now_ns(), checkpoint_id)
        except LogTransactionGoneError as error:
            raise TransactionLostError(str(error)) from error

    def abort(self, transaction: Transaction) -> None:
        producer = Producer(*transaction)
        self._requests.ask(self._log.abort, producer, self._now_ns())

    def recover_and_abort(self, transaction: Transaction) -> None:
        try:
            self.abort(transaction)
        except InvalidTransactionError:
            # A checkpoint newer than the restored one has published it.
            if self._spec.newer_commits != "report":
                raise

    def close(self) -> None:
        if self._attached is None:
            return
        try:
            super().close()
        except TransactionLogError:
            # The next attempt aborts it, or it times out.
            self.context.metrics.count("numAbortsFailed")
        finally:
            self._detach(is_dead=False)

    def abandon(self) -> None:
        self._detach(is_dead=True)

    def _detach(self, *, is_dead: bool) -> None:
        log, self._attached = self._attached, None
        if log is not None:
            self._spec.detach(log, self.context.metrics, is_dead=is_dead)

    def fingerprint(self) -> object:
        return super().fingerprint(), sorted(self._written.items()), sorted(self._idle.items())
