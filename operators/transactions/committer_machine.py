"""When a committer commits (Flink: ``CommitterOperator`` with ``CheckpointCommittableManagerImpl.commit``).

Rules (for the differences between versions see :mod:`operators.transactions.commit_rules`):

* A notification commits all books up to the greatest checkpoint notified so far, oldest first. So if a notification is
  lost or late, the next one makes up for it.
* A checkpoint is committed in rounds; the next round has only unfinished requests. If some stay unfinished, the task
  fails, and the restore begins again. Requests committed in one round are not repeated.
* A restore from checkpoint ``n`` commits all books up to ``n`` at once. The notification may or may not have arrived
  before the failure, so **a committer must be idempotent**.
* The end of the input does not commit committables that a checkpoint will still cover. Without checkpoints, and in
  batch jobs, it commits all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from operators.transactions.commit_rules import CommitRules
from operators.transactions.committable_collector import BookState, CommittableCollector
from operators.transactions.committables import (
    END_OF_INPUT,
    SUMMARY,
    CheckpointCommittables,
    CommitFailedError,
    CommitRequest,
    CommittableProtocolError,
    Message,
)


class Committer(Protocol):
    """Makes committables visible; idempotent (Flink: ``Committer``)."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit the requests in this order, and signal each outcome that is not success. An error fails the task, and
        all of them are requested again after the restore."""


class CommittedCheckpoint(NamedTuple):
    """The committed committables of one checkpoint, in the order of subtasks."""

    checkpoint_id: int
    payloads: list[Any]


def count_nothing(name: str, amount: int) -> None:
    pass


class CommittingMachine:
    """The books of one committer, and the known complete checkpoints. ``count``: gets names and amounts for metrics."""

    def __init__(
        self, committer: Committer, rules: CommitRules | None = None, count: Callable[[str, int], None] = count_nothing
    ) -> None:
        self.rules = CommitRules() if rules is None else rules
        self.books = CommittableCollector()
        self.completed_id = -1
        """The greatest checkpoint that is known to be complete."""
        self._committer = committer
        self._count = count
        self._ended = False

    def add(self, message: Message) -> list[CommittedCheckpoint]:
        """A message has come; commit the committables that it completes."""
        raise TypeError(f"{type(self).__name__} books no messages")

    def commit_covered(self) -> list[CommittedCheckpoint]:
        """Commit all that complete checkpoints cover, oldest first; returns the finished checkpoints."""
        raise TypeError(f"{type(self).__name__} commits nothing")

    def notify(self, checkpoint_id: int) -> list[CommittedCheckpoint]:
        """A checkpoint is complete."""
        # The end is covered by a checkpoint that began after it (mutant "any notification covers the end").
        if self._ended and self.rules.next_covers_end:
            checkpoint_id = END_OF_INPUT
        self.completed_id = max(self.completed_id, checkpoint_id)
        return self.commit_covered()

    def end_of_input(self, *, checkpoint_follows: bool) -> list[CommittedCheckpoint]:
        """The input has ended."""
        self._ended = True
        if checkpoint_follows:
            return []
        self.completed_id = END_OF_INPUT
        return self.commit_covered()

    def restore(self, state: Iterable[BookState], subtask: int, checkpoint_id: int) -> list[CommittedCheckpoint]:
        """Take over the books of checkpoint ``checkpoint_id``, and commit what it covers."""
        self.books.restore(state, subtask if self.rules.keeps_uncovered else None)
        if not self.rules.keeps_uncovered:
            dropped = self.books.drop_behind(checkpoint_id)
            if dropped:
                self._count("droppedCommittables", dropped)
        self.completed_id = max(self.completed_id, checkpoint_id)
        return self.commit_covered()

    def state(self) -> list[BookState]:
        """The books, as plain values."""
        return self.books.state()

    def fingerprint(self) -> object:
        return repr(self.books.state()), self.completed_id, self._ended


class CommitterMachine(CommittingMachine):
    """The machine of the committer of one subtask."""

    def add(self, message: Message) -> list[CommittedCheckpoint]:
        if is_last(message):
            return []
        self.books.add(message)
        # Commits only what a completed checkpoint covers (mutant "committed on arrival").
        if message[1] <= self.completed_id and self.rules.waits_for_late:
            return self.commit_covered()
        return []

    def end_of_input(self, *, checkpoint_follows: bool) -> list[CommittedCheckpoint]:
        """See the base. Raises :class:`CommittableProtocolError` when an announced committable is missing."""
        if self.rules.waits_for_late and not self.rules.older_may_be_incomplete:
            for checkpoint in self.books.up_to(END_OF_INPUT):
                _check_complete(checkpoint, "is incomplete at the end of the input")
        return super().end_of_input(checkpoint_follows=checkpoint_follows)

    @property
    def needs_retry(self) -> bool:
        """Whether a postponed request must be tried again ``retry_delay_ms`` later."""
        return self.rules.retry_delay_ms is not None and any(
            checkpoint.requests(only_fully_received=True) for checkpoint in self.books.up_to(self.completed_id)
        )

    def commit_covered(self) -> list[CommittedCheckpoint]:
        done = []
        for checkpoint in self.books.up_to(self.completed_id):
            self.commit(checkpoint, self._waits(checkpoint))
            # Until all of it is committed, the whole checkpoint stays booked: downstream gets it once, even with a
            # restore in between. (By Flink's rules each part is sent by itself.)
            if checkpoint.is_settled or self.rules.keeps_uncovered:
                done.append(CommittedCheckpoint(checkpoint.checkpoint_id, checkpoint.drain()))
            if checkpoint.is_finished:
                self.books.remove(checkpoint)
        return done

    def _waits(self, checkpoint: CheckpointCommittables) -> bool:
        rules = self.rules
        if rules.older_may_be_incomplete:
            return checkpoint.checkpoint_id == self.completed_id and not self._ended
        return rules.waits_for_late

    def commit(self, checkpoint: CheckpointCommittables, only_fully_received: bool) -> None:
        """Commit a checkpoint, or only the subtasks that have sent everything.

        :raises CommittableProtocolError: when a committable is missing, and the rules do not wait for it
        :raises CommitFailedError: when a request could not be committed
        """
        if not self.rules.waits_for_late:
            _check_complete(checkpoint, "is complete, but its committables are not")
        requests = checkpoint.requests(only_fully_received=only_fully_received)
        in_one_go = self.rules.retry_delay_ms is None or self._ended
        unfinished = commit_in_rounds(
            self._committer, requests, self.rules.max_retries if in_one_go else 0, self._count
        )
        if unfinished and in_one_go:
            raise retries_exhausted(checkpoint.checkpoint_id, unfinished, self.rules.max_retries)


def is_last(message: Message) -> bool:
    """Whether this is the last message of a writer."""
    return message[0] == SUMMARY and message[1] == END_OF_INPUT and not message[4]


def commit_in_rounds(
    committer: Committer, requests: list[CommitRequest], max_retries: int, count: Callable[[str, int], None]
) -> list[CommitRequest]:
    """Commit ``requests``, and repeat postponed ones; returns those that are unfinished in the end."""
    tried = requests
    for round_number in range(max_retries + 1):
        if not requests:
            break
        if round_number:
            count("retriedCommittables", len(requests))
        for request in requests:
            request.begin_round()
        committer.commit(tuple(requests))
        for request in requests:
            request.end_round()
        requests = [request for request in requests if not request.is_finished]
    committed = sum(request.is_committed for request in tried)
    already = sum(request.was_committed_before for request in tried)
    outcomes = {
        "successfulCommittables": committed - already,
        "alreadyCommittedCommittables": already,
        "failedCommittables": len(tried) - committed - len(requests),
    }
    for name, amount in outcomes.items():
        if amount:
            count(name, amount)
    return requests


def retries_exhausted(checkpoint_id: int, unfinished: list[CommitRequest], max_retries: int) -> CommitFailedError:
    """The error for requests that could not be committed in all rounds."""
    first = unfinished[0].committable
    return CommitFailedError(
        "retries_exhausted",
        f"could not commit {len(unfinished)} committables of checkpoint {checkpoint_id} in {max_retries + 1} rounds;"
        f" the first one is {first!r}\n"
        "  they are in the state of the committer, and a restore tries again\n"
        "  fix: see to what they are committed to; or let the sink try more often (max_retries)",
    )


def _check_complete(checkpoint: CheckpointCommittables, what: str) -> None:
    if not checkpoint.is_fully_received:
        raise CommittableProtocolError(
            "incomplete_batch",
            f"checkpoint {checkpoint.checkpoint_id} {what}: {checkpoint.describe_missing()}\n"
            "  a writer announces in its summary how many it sends; an operator between it and the committer must pass"
            " on all of them, or announce its own",
        )
