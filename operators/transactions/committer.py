"""The operators around committers (Flink: ``CommitterOperator``, ``GlobalCommitterOperator``). Their decisions are in
:mod:`operators.transactions.committer_machine` and :mod:`operators.transactions.global_committer_machine`.

Rules:

* The state is every committable that is booked and not committed.
* A restore's commits are sent downstream with the first element, because downstream operators open later.
* A committer may send more after the end of its input, because it commits the last checkpoint's committables only after
  that checkpoint has completed. Its task and that of the global committer stay until then.
* Timers do not fire after the end of the input. Postponed requests are then tried again at once, ``max_retries`` times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import WeirError
from engine.elements.operator import Operator, OperatorContext
from operators.basic import SinkOperator
from operators.transactions.committable_collector import book_shape
from operators.transactions.committables import END_OF_INPUT, CommitRequest, messages, summaries_among, summary
from operators.transactions.committer_machine import CommittedCheckpoint, Committer, CommitterMachine, CommittingMachine
from operators.transactions.global_committer_machine import GlobalCommitterMachine

if TYPE_CHECKING:
    from operators.transactions.committing_sink import CommittingSink


class _Guarded:
    """A user's committer; its errors are reported as such."""

    def __init__(self, committer: Committer, operator: Operator) -> None:
        self._committer = committer
        self._operator = operator

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        try:
            self._committer.commit(requests)
        except (WeirError, AssertionError):
            raise
        except Exception as error:
            committables = [request.committable for request in requests]
            raise self._operator.user_error("committer", committables, error) from error


class _Idle:
    """A committer that does nothing."""

    def __init__(self, context: OperatorContext) -> None:
        """It needs no services."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """All of them succeed."""


class _CommittingOperator(SinkOperator):
    """The common part of both operators."""

    _machine: CommittingMachine
    summaries_of = staticmethod(summaries_among)

    def __init__(self, sink: CommittingSink, create: Callable[[OperatorContext], Committer]) -> None:
        self._rules = sink.rules
        self._committable_shape = sink.committable_shape
        self._create = create
        self._committer: Committer | None = None

    def _create_machine(self, committer: Committer) -> CommittingMachine:
        raise TypeError(f"{type(self).__name__} has no machine")

    def initialize_state(self) -> None:
        """Commit what the restored checkpoint covers."""
        context = self.context
        self._state = context.operator_backend().list_state("committables", book_shape(self._committable_shape))
        self._committer = self._create(context)
        self._machine = self._create_machine(_Guarded(self._committer, self))
        restored_id = context.restored_checkpoint_id()
        if restored_id is not None:
            self._committed(self._machine.restore(self._state.get(), context.subtask, restored_id))

    def process_batch(self, batch: Batch) -> None:
        """Book messages; commit those that were waited for."""
        add = self._machine.add
        for message in batch.values:
            done = add(message)
            if done:
                self._committed(done)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update(self._machine.state())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._committed(self._machine.notify(checkpoint_id))

    def resume_at_end(self, checkpoint_id: int) -> None:
        self._committed(self._machine.end_of_input(checkpoint_follows=True))

    def finish(self) -> None:
        self._committed(self._machine.end_of_input(checkpoint_follows=self.context.checkpointing_enabled))

    def _committed(self, done: list[CommittedCheckpoint]) -> None:
        """Called with the committed checkpoints."""

    def close(self) -> None:
        close = getattr(self._committer, "close", None)
        if close is not None:
            close()

    def abandon(self) -> None:
        self.close()

    def fingerprint(self) -> object:
        return self._machine.fingerprint() if self._committer is not None else None


class CommitterOperator(_CommittingOperator):
    """The committer of one subtask. ``emits``: whether it sends its committed committables downstream."""

    def __init__(
        self,
        sink: CommittingSink,
        *,
        emits: bool = False,
        create: Callable[[OperatorContext], Committer] | None = None,
    ) -> None:
        super().__init__(sink, sink.create_committer if create is None else create)
        self._sink, self._emits = sink, emits
        self._finished = False
        self._untold: list[Any] = []
        self._is_open = False
        self._awaits_retry = False

    def _create_machine(self, committer: Committer) -> CommitterMachine:
        return CommitterMachine(committer, self._rules, self.context.metrics.count)

    def open(self) -> None:
        """Try the requests that the restore has postponed again."""
        self._retry_if_needed()

    def process_batch(self, batch: Batch) -> None:
        """Book messages; commit those that were waited for."""
        self._tell()
        if self._emits and self.lineage is not None:
            for message in summaries_among(batch.values):
                self.lineage.waits(1, message[1])
        super().process_batch(batch)
        self._retry_if_needed()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """At the latest before the next barrier, send the committables that a restore has committed."""
        self._tell()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._tell()
        super().notify_checkpoint_complete(checkpoint_id)
        self._say_if_that_was_all()
        self._retry_if_needed()

    def resume_at_end(self, checkpoint_id: int) -> None:
        self._finished = True
        super().resume_at_end(checkpoint_id)

    def on_processing_time(self, time_ms: int) -> None:
        """Try postponed requests again."""
        self._awaits_retry = False
        self._committed(self._machine.commit_covered())
        self._retry_if_needed()

    def finish(self) -> None:
        self._tell()
        self._finished = True
        super().finish()
        self._say_if_that_was_all()

    def _retry_if_needed(self) -> None:
        delay_ms, machine = self._rules.retry_delay_ms, self._machine
        assert isinstance(machine, CommitterMachine)
        if delay_ms is not None and not self._awaits_retry and machine.needs_retry:
            self._awaits_retry = True
            self.context.register_processing_timer(self.context.processing_time_ms() + delay_ms)

    # --- messages downstream ------------------------------------------------------------------------------

    def _committed(self, done: list[CommittedCheckpoint]) -> None:
        if self._emits:
            subtask, subtasks = self.context.subtask, self.context.parallelism
            self._untold += [
                message for one in done for message in messages(one.checkpoint_id, subtask, subtasks, one.payloads)
            ]
            if self._is_open:
                self._tell()

    def _tell(self) -> None:
        self._is_open = True
        untold, self._untold = self._untold, []
        if self.lineage is None:
            if untold:
                self.output.emit(Batch(untold))
            return
        for checkpoint_id, told in groupby(untold, key=itemgetter(1)):
            self.lineage.waits(0, checkpoint_id)
            self.lineage.emitting(None, checkpoint_id)
            self.output.emit(Batch(list(told)))
            self.lineage.emitted()

    def _say_if_that_was_all(self) -> None:
        machine = self._machine
        assert isinstance(machine, CommitterMachine)
        if self._emits and self._finished and machine.books.is_empty:
            self.output.emit(Batch([summary(END_OF_INPUT, self.context.subtask, self.context.parallelism, 0)]))

    def without_effects(self) -> Operator:
        """The same operator, which commits nothing."""
        return CommitterOperator(self._sink, emits=self._emits, create=_Idle)

    def fingerprint(self) -> object:
        return super().fingerprint(), self._finished, repr(self._untold), self._awaits_retry


class GlobalCommitterOperator(_CommittingOperator):
    """The one committer after all subtasks. ``commit_on_input``: its inputs are committers, not writers."""

    def __init__(
        self,
        sink: CommittingSink,
        *,
        commit_on_input: bool,
        create: Callable[[OperatorContext], Committer] | None = None,
    ) -> None:
        super().__init__(sink, sink.create_global_committer if create is None else create)
        self._sink, self._commit_on_input = sink, commit_on_input

    def without_effects(self) -> Operator:
        """The same operator, which commits nothing."""
        return GlobalCommitterOperator(self._sink, commit_on_input=self._commit_on_input, create=_Idle)

    def _create_machine(self, committer: Committer) -> GlobalCommitterMachine:
        return GlobalCommitterMachine(
            committer, self._rules, self.context.metrics.count, commit_on_input=self._commit_on_input
        )
