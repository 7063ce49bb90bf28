"""The common part of all sinks with transactions in another system (Flink: ``TwoPhaseCommitSinkFunction``).

Rules, with their reasons:

* One transaction is current. A checkpoint *pre-commits* it: from then on the other system must be able to commit it,
  even if our process dies. It becomes pending for that checkpoint, and the next one begins at once, even if it gets no
  records. The state holds the new current transaction and all pending ones.
* Only when the checkpoint has completed are the pending transactions of it *and of all before it* committed: a
  notification may never come, and the next one makes up for it. A commit at the barrier would publish records that the
  restore of an older checkpoint produces again.
* Even a transaction whose commit failed is no longer pending: the error fails the task, and the restored state has it
  again.
* A restore from checkpoint ``n`` commits all transactions pending in ``n``. The notification may or may not have
  arrived before, so **commit must be idempotent**. The restore aborts the transaction that was current in ``n``,
  because its records come again, even if a later, uncompleted checkpoint has pre-committed it. Usually
  ``abort_lingering`` finds it as well; after a restore under another writer only the state knows it.
* Dead attempts leave transactions that no state contains: begun with a checkpoint that did not complete. They block
  readers until they time out, and zombies may still write to them; ``abort_lingering`` aborts them. It must spare the
  pending transactions of *other* subtasks, so all pending transactions are in a union list.
* After ``finish`` the last checkpoint pre-commits the last transaction, and no other begins. Without checkpoints it is
  committed at the end.
* The other system aborts transactions that stay open for too long: its timeout must be longer than the longest
  checkpoint together with the longest restart. If it has aborted a pending transaction, *data is lost*: an error that a
  restart cannot repair. With ``ignore_failures_after_transaction_timeout`` a restore goes on without it if it is older
  than the timeout. It counts in ``numTransactionsLost`` and is reported as a loss, so the verdict on the run is
  *violated*. This never happens silently, and never in a notification.

Two rules are stricter than Flink's. Only :class:`TransactionLostError` counts as lost data, which a restore may forgive
after the timeout. Any other error fails the task, because the next attempt may succeed. And transactions that no state
contains are aborted (``abort_lingering``); in Flink they wait for the timeout of the other system.

Source: ``TwoPhaseCommitSinkFunction`` and its tests; for lingering transactions KIP-664 and Flink's FLIP-511.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, DataLossError, check_whole
from operators.basic import SinkOperator
from state_backends.base import Shape, anything, list_of, number, optional, row, whole

Transaction = tuple[Any, ...]
"""Names a transaction in the other system: a tuple of plain values, which goes into the state."""


class TransactionLostError(Exception):
    """Raised by ``commit`` and ``recover_and_commit`` when the transaction can never be committed any more."""


class TwoPhaseCommitSinkOperator(SinkOperator):
    """Drives the transactions. Subclasses talk to the other system: ``begin``, ``invoke``, ``pre_commit``, ``commit``
    and ``abort``, and the methods for recovery if that differs.

    ``transaction_timeout_ns``  the other system aborts a transaction after this time, ``None`` = never;
    ``timeout_warning_ratio``   of it, from 0 to 1: a commit of an older transaction is counted in
                                ``numTransactionsNearTimeout`` and passed to ``transaction_near_timeout``,
                                ``None`` = never;
    ``ignore_failures_after_transaction_timeout``  see the rules.
    """

    def __init__(
        self,
        *,
        transaction_timeout_ns: int | None = None,
        timeout_warning_ratio: float | None = None,
        ignore_failures_after_transaction_timeout: bool = False,
    ) -> None:
        check_timeouts(transaction_timeout_ns, timeout_warning_ratio)
        self._timeout_ns = transaction_timeout_ns
        self._warning_ratio = timeout_warning_ratio
        self._ignores_timeouts = ignore_failures_after_transaction_timeout
        self._current: tuple[Transaction, int] | None = None
        """The current transaction, and when it was begun, in ns."""
        self._pending: list[tuple[int, Transaction, int]] = []
        """The pending ones with their checkpoints, in the order of pre-commits."""
        self._finished = False

    transaction_shape: Shape = staticmethod(list_of(anything))
    """The shape of a transaction in the state."""

    # --- the other system ---------------------------------------------------------------------------------

    def begin(self) -> Transaction:
        raise TypeError(f"{type(self).__name__} does not say how to begin a transaction")

    def invoke(self, transaction: Transaction, batch: Batch) -> None:
        """Write records to the transaction."""
        raise TypeError(f"{type(self).__name__} does not say how to write to a transaction")

    def pre_commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        """Make sure that the transaction can be committed from now on; an error declines the checkpoint."""
        raise TypeError(f"{type(self).__name__} does not say how to pre-commit a transaction")

    def commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        """Make it visible; idempotent. Raises :class:`TransactionLostError` when that is impossible for ever."""
        raise TypeError(f"{type(self).__name__} does not say how to commit a transaction")

    def abort(self, transaction: Transaction) -> None:
        """Abort it; idempotent."""
        raise TypeError(f"{type(self).__name__} does not say how to abort a transaction")

    def recover_and_commit(self, transaction: Transaction, checkpoint_id: int) -> None:
        """Commit a transaction of an earlier attempt."""
        # A restored checkpoint covers it: prepared is not yet committed (mutant "prepared rows taken for committed").
        self.commit(transaction, checkpoint_id)

    def recover_and_abort(self, transaction: Transaction) -> None:
        """Abort a transaction of an earlier attempt."""
        self.abort(transaction)

    def transaction_near_timeout(self, transaction: Transaction, elapsed_ns: int) -> None:
        """``transaction``, about to be committed, was begun longer ago than the warning ratio allows: the timeout is
        too short, or checkpoints take too long. Called once for each that ``numTransactionsNearTimeout`` counts."""

    def abort_lingering(self, spared: Sequence[Transaction]) -> None:
        """Abort the transactions that earlier attempts of this subtask have left, except ``spared``."""

    # --- life cycle ---------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Decide all transactions of earlier attempts before the first one of this attempt."""
        backend = self.context.operator_backend()
        one = self.transaction_shape
        state_shape = row(optional(row(one, number)), list_of(row(whole, one, number)))
        self._state = backend.list_state("transactions", state_shape)
        self._everybodys = backend.union_list_state("pre-committed-transactions", one)
        for current, pending in self._state.get():
            for checkpoint_id, transaction, begun_ns in pending:
                self._recover_and_commit(checkpoint_id, tuple(transaction), begun_ns)
            if current is not None:
                self.recover_and_abort(tuple(current[0]))
        self.abort_lingering([tuple(transaction) for transaction in self._everybodys.get()])

    def _recover_and_commit(self, checkpoint_id: int, transaction: Transaction, begun_ns: int) -> None:
        self._warn_if_old(transaction, begun_ns)
        try:
            self.recover_and_commit(transaction, checkpoint_id)
        except TransactionLostError as error:
            timeout_ns = self._timeout_ns
            late = timeout_ns is not None and self._age_ns(begun_ns) > timeout_ns
            if not (late and self._ignores_timeouts):
                raise self._data_loss(checkpoint_id, error) from error
            self.context.metrics.count("numTransactionsLost")
            self.context.report_loss(f"transaction {transaction} of checkpoint {checkpoint_id}: {error}")
        else:
            self.context.metrics.count("numTransactionsRecovered")

    def open(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._current = (self.begin(), self.context.processing_time_ns())

    def process_batch(self, batch: Batch) -> None:
        assert self._current is not None, "records after finish"
        self.invoke(self._current[0], batch)

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Pre-commit the current transaction, and begin the next."""
        if self._current is not None:
            transaction, begun_ns = self._current
            self.pre_commit(transaction, checkpoint_id)
            self._pending.append((checkpoint_id, transaction, begun_ns))
            self._current = None
            if not self._finished:
                self._begin()
        self._state.update([(self._current, list(self._pending))])
        self._everybodys.update([transaction for _, transaction, _ in self._pending])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the transactions that this checkpoint covers."""
        covered = [one for one in self._pending if one[0] <= checkpoint_id]
        self._pending = [one for one in self._pending if one[0] > checkpoint_id]
        first_error: Exception | None = None
        for pending_id, transaction, begun_ns in covered:
            self._warn_if_old(transaction, begun_ns)
            try:
                self.commit(transaction, pending_id)
            except TransactionLostError as error:
                loss = self._data_loss(pending_id, error)
                loss.__cause__ = error
                first_error = first_error or loss
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def finish(self) -> None:
        self._finished = True
        if not self.context.checkpointing_enabled and self._current is not None:
            transaction, _ = self._current
            self._current = None
            self.pre_commit(transaction, None)
            self.commit(transaction, None)

    def close(self) -> None:
        """Abort the current transaction; pending transactions are for the next attempt."""
        if self._current is not None:
            transaction, _ = self._current
            self._current = None
            self.abort(transaction)

    def transactions(self) -> list[tuple[str, Transaction]]:
        """For people: the transactions that are not committed yet, and how far each is."""
        pending = [(f"pre-committed for checkpoint {number}", one) for number, one, _ in self._pending]
        return pending if self._current is None else [*pending, ("open", self._current[0])]

    def fingerprint(self) -> object:
        return (
            None if self._current is None else self._current[0],
            [(checkpoint_id, transaction) for checkpoint_id, transaction, _ in self._pending],
            self._finished,
        )

    # --- time ---------------------------------------------------------------------------------------------

    def _age_ns(self, begun_ns: int) -> int:
        return self.context.processing_time_ns() - begun_ns

    def _warn_if_old(self, transaction: Transaction, begun_ns: int) -> None:
        timeout_ns, ratio, elapsed_ns = self._timeout_ns, self._warning_ratio, self._age_ns(begun_ns)
        if timeout_ns is not None and ratio is not None and elapsed_ns > timeout_ns * ratio:
            self.context.metrics.count("numTransactionsNearTimeout")
            self.transaction_near_timeout(transaction, elapsed_ns)

    def _data_loss(self, checkpoint_id: int, error: TransactionLostError) -> DataLossError:
        return DataLossError(
            f"sink {self.context.name!r} cannot commit what it has pre-committed for checkpoint {checkpoint_id}: "
            f"{error}\n"
            "  its records are lost: the checkpoint is completed, and sources will not read them again\n"
            "  fix: set a transaction timeout longer than the longest checkpoint and restart together; to go on"
            " without these records, resume from an older savepoint or set"
            " ignore_failures_after_transaction_timeout"
        )


def check_timeouts(transaction_timeout_ns: int | None, timeout_warning_ratio: float | None) -> None:
    """Raises :class:`ConfigurationError` unless both are valid."""
    check_whole("transaction_timeout_ns", transaction_timeout_ns, or_none=True)
    ratio: object = timeout_warning_ratio
    if ratio is not None and not (isinstance(ratio, int | float) and 0 <= ratio <= 1):
        raise ConfigurationError(f"timeout_warning_ratio is {timeout_warning_ratio!r}; it must be from 0 to 1, or None")
