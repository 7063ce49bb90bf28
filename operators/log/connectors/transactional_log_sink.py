"""The operator that writes to a log exactly once, in transactions that are committed when their checkpoint has
completed: see :mod:`operators.transactions.two_phase_commit`.

Rules.

* Transactional ids are ``{uid or prefix}/{subtask}/{incarnation}.{attempt}/{slot}``. Each attempt has its own names, so
  a zombie can never take a name from its successor. Each unfinished transaction of an attempt has its own slot, which
  is free again after the commit. The successor of a subtask takes over *all* names of older attempts, except those
  pre-committed in the checkpoint it starts from. This fences zombies. After a change of parallelism, a name belongs to
  the subtask whose number is the name's modulo the new parallelism (as in Flink).
* Each commit stores the number of its checkpoint in the log. If a restore finds a higher number than its own, it would
  publish the same records again, and a log cannot take records back. By default the sink refuses the restore
  (``newer_commits="fail"``), because the newer checkpoint may be unreadable only for a moment. With ``"report"`` it
  counts them in ``numTransactionsPublishedAgain``. It never skips records.
* A start without a checkpoint may find committed transactions under its names. They are of *another run*: this one has
  completed no checkpoint, so it has committed nothing, no matter how often it died. In a log on disk the sink refuses
  (``existing="fail"``), or leaves the records there (``"append"``) and forgets the names of that run. Otherwise the
  numbers of its checkpoints would be taken for newer commits of this run.
* Without checkpoints a transaction is committed at the end of the input. If another subtask fails after that, a
  restarted subtask commits its records again; that is counted in ``numTransactionsPublishedAgain``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from engine.elements.errors import OutputAheadError
from operators.log.port import (
    InvalidTransactionError,
    LogTransactionGoneError,
    Producer,
    Requests,
    TransactionDescription,
    TransactionLog,
    TransactionLogError,
)
from operators.transactions import Transaction, TransactionLostError, TwoPhaseCommitSinkOperator
from state_backends.base import row, text, whole

if TYPE_CHECKING:
    from operators.log.connectors.log_sink import LogSink

_new_tuple = tuple.__new__


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
        """The transactional ids of earlier attempts that this subtask is responsible for. A start without a checkpoint
        comes after every other run, so no name is newer than its own."""
        context, prefix = self.context, f"{self._prefix}/"
        is_first = self._spec.log_outlives_runs and context.restored_checkpoint_id() is None
        mine = []
        for found in self._requests.ask(self._log.transactions, prefix, self._now_ns()):
            subtask, attempt, _ = found.producer.transactional_id.removeprefix(prefix).split("/")
            incarnation, _, number = attempt.partition(".")
            if int(subtask) % context.parallelism == context.subtask and (
                is_first or (int(incarnation), int(number)) < self._attempt
            ):
                mine.append(found)
        return mine

    # --- recovery -----------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        self._attached = self._spec.attach(self.context)
        restored = self.context.restored_checkpoint_id()
        if restored is None and self._spec.log_outlives_runs:
            self._check_nothing_is_there()
        elif restored is not None:
            self._check_newer_commits(restored)
        super().initialize_state()

    def _check_nothing_is_there(self) -> None:
        others = [one for one in self._mine_of_earlier() if one.commits]
        if not others:
            return
        context, spec = self.context, self._spec
        is_ours = not context.checkpointing_enabled and self._attempt != (1, 1)
        if is_ours:
            context.metrics.count("numTransactionsPublishedAgain", sum(one.commits for one in others))
        elif spec.existing == "fail":
            raise OutputAheadError(
                f"sink {context.name!r} starts from nothing, but another run has committed"
                f" {sum(one.commits for one in others)} transactions to its log, such as those of"
                f" {others[-1].producer.transactional_id!r}: its records would follow those of that run\n"
                "  fix: resume that run; or write to another log; or set existing='append' (of a table"
                " 'sink.existing'), or give each run a transactional_id_prefix of its own, to leave the records where"
                " they are"
            )
        for one in others:
            self._requests.ask(self._log.forget, one.producer.transactional_id, self._now_ns())

    def _check_newer_commits(self, restored: int) -> None:
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
