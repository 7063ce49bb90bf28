"""The messages from a writer to a committer, and the committer's books of them (Flink: ``CommittableMessage``,
``SubtaskCommittableManager``, ``CheckpointCommittableManagerImpl``, ``CommitRequestImpl``).

Rules:

* Before each barrier a writer sends a *summary* (checkpoint, subtask, number of writers, how many committables) and
  then exactly that many *committables*. Both are plain tuples, because they may be in flight during a snapshot.
* A committable is booked by the checkpoint that **it** names, never by the last barrier: without alignment,
  committables of the next checkpoint come before the barrier of this one.
* The book of a subtask counts announced committables. Committed ones are *drained* from it; those that failed for a
  known reason are counted and dropped. The book is finished when every announced one is drained or failed.
* A second summary for a subtask and checkpoint is an error, and so is an unannounced committable. Only the committables
  that writers send at the end of their input may be added to earlier ones.
* The outcome of a request: no signal is success; *already committed* is success; a *known failure* is counted and
  dropped; an *unknown failure* is raised where it is reported; *retry later* leaves it for the next round, *update and
  retry* does so with another committable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.elements.errors import StateError

SUMMARY, COMMITTABLE = "summary", "committable"
"""The first field of a message."""

END_OF_INPUT = 2**63 - 1
"""The checkpoint that a writer names in its last message (Flink: ``EOI``)."""

Message = tuple[Any, ...]
"""``(SUMMARY, checkpoint, subtask, subtasks, count)`` or ``(COMMITTABLE, checkpoint, subtask, payload)``."""


class _KindOfStateError(StateError):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class CommittableProtocolError(_KindOfStateError):
    """Summaries and committables do not match: between the writers and the committer some were added or lost. ``kind``
    names the mismatch in one word."""


class CommitFailedError(_KindOfStateError):
    """A committable could not be committed, but may still be committed later. The task fails, and the restore tries
    again. ``kind`` is ``unknown_failure`` or ``retries_exhausted``."""


def summary(checkpoint_id: int, subtask: int, subtasks: int, count: int) -> Message:
    """``count`` committables for ``checkpoint_id`` follow from ``subtask``, which is one of ``subtasks``."""
    return (SUMMARY, checkpoint_id, subtask, subtasks, count)


def committable(checkpoint_id: int, subtask: int, payload: Any) -> Message:
    """One of those."""
    return (COMMITTABLE, checkpoint_id, subtask, payload)


def messages(checkpoint_id: int, subtask: int, subtasks: int, payloads: Iterable[Any]) -> list[Message]:
    """A summary, and the committables after it."""
    sent = [committable(checkpoint_id, subtask, payload) for payload in payloads]
    return [summary(checkpoint_id, subtask, subtasks, len(sent)), *sent]


def summaries_among(sent: Sequence[Message]) -> list[Message]:
    """The summaries of a checkpoint's committables."""
    return [one for one in sent if one[0] == SUMMARY and one[1] != END_OF_INPUT]


_PENDING, _COMMITTED, _ALREADY, _FAILED = "pending", "committed", "already committed", "failed"


class CommitRequest:
    """One committable in the hands of a committer (Flink: ``Committer.CommitRequest``).

    :ivar committable: the payload to commit
    :ivar retries: how often it was postponed so far
    """

    __slots__ = ("_state", "_told", "committable", "retries")

    def __init__(self, payload: Any, retries: int = 0) -> None:
        self.committable = payload
        self.retries = retries
        self._state = _PENDING
        self._told = False

    def signal_already_committed(self) -> None:
        """It had been committed before: a success."""
        self._tell(_ALREADY)

    def signal_failed_with_known_reason(self, why: object) -> None:
        """It can never be committed, and the job goes on without it; ``why`` is for the user."""
        self._tell(_FAILED)

    def signal_failed_with_unknown_reason(self, why: object) -> None:
        """It was not committed, for an unknown reason. Raises :class:`CommitFailedError`."""
        cause = why if isinstance(why, BaseException) else None
        raise CommitFailedError("unknown_failure", f"could not commit {self.committable!r}: {why}") from cause

    def retry_later(self) -> None:
        """Try again later."""
        self._tell(_PENDING)
        self.retries += 1

    def update_and_retry_later(self, payload: Any) -> None:
        """Try again later with ``payload`` (for example because a part is committed)."""
        self.committable = payload
        self.retry_later()

    def _tell(self, state: str) -> None:
        self._state, self._told = state, True

    def begin_round(self) -> None:
        """Called before a committer is asked."""
        self._told = False

    def end_round(self) -> None:
        """Called after a committer was asked: no signal is success."""
        if not self._told:
            self._state = _COMMITTED

    @property
    def is_finished(self) -> bool:
        """Whether it needs no more work."""
        return self._state != _PENDING

    @property
    def is_committed(self) -> bool:
        """Whether it was a success."""
        return self._state in (_COMMITTED, _ALREADY)

    @property
    def was_committed_before(self) -> bool:
        """Whether it had been committed before this request."""
        return self._state == _ALREADY


class SubtaskCommittables:
    """The book of one subtask and checkpoint.

    :ivar expected: how many committables were announced
    :ivar drained: how many of them were committed and are no longer here
    :ivar failed: how many failed for a known reason and are no longer here
    """

    __slots__ = ("drained", "expected", "failed", "requests")

    def __init__(
        self, expected: int, requests: Iterable[CommitRequest] = (), drained: int = 0, failed: int = 0
    ) -> None:
        self.expected = expected
        self.requests = list(requests)
        self.drained = drained
        self.failed = failed

    def add(self, payload: Any) -> None:
        """A committable has come.

        :raises CommittableProtocolError: when all announced ones had come before
        """
        if self.is_fully_received:
            raise CommittableProtocolError(
                "not_announced", f"committable {payload!r} comes after all {self.expected} that were announced"
            )
        self.requests.append(CommitRequest(payload))

    @property
    def received(self) -> int:
        """How many have come."""
        return len(self.requests) + self.drained + self.failed

    @property
    def is_fully_received(self) -> bool:
        """Whether all have come."""
        return self.received >= self.expected

    @property
    def pending(self) -> list[CommitRequest]:
        """Those without a known outcome."""
        return [request for request in self.requests if not request.is_finished]

    @property
    def is_finished(self) -> bool:
        """Whether all were drained or have failed."""
        return self.drained + self.failed == self.expected

    def drain(self) -> list[Any]:
        """Take out the committed ones, and drop the failed ones."""
        committed = [request.committable for request in self.requests if request.is_committed]
        pending = self.pending
        self.failed += len(self.requests) - len(pending) - len(committed)
        self.drained += len(committed)
        self.requests = pending
        return committed

    @property
    def kept(self) -> list[CommitRequest]:
        """The state: all except failed ones. Committables that were committed but not drained are requested again after
        a restore."""
        return [request for request in self.requests if request.is_committed or not request.is_finished]

    def merge(self, other: SubtaskCommittables) -> None:
        """Take over another book: everything adds up."""
        self.expected += other.expected
        self.requests += other.requests
        self.drained += other.drained
        self.failed += other.failed


class CheckpointCommittables:
    """The books of one checkpoint, by subtask.

    :ivar subtasks: how many subtasks send committables, as their summaries say
    """

    __slots__ = ("books", "checkpoint_id", "is_end_of_input", "subtasks")

    def __init__(self, checkpoint_id: int, subtasks: int, *, is_end_of_input: bool = False) -> None:
        self.checkpoint_id = checkpoint_id
        self.subtasks = subtasks
        self.is_end_of_input = is_end_of_input
        self.books: dict[int, SubtaskCommittables] = {}

    def announce(self, subtask: int, expected: int) -> None:
        """A summary has come.

        :raises CommittableProtocolError: when there is one already
        """
        book = SubtaskCommittables(expected)
        if subtask not in self.books:
            self.books[subtask] = book
        elif self.is_end_of_input:
            self.books[subtask].merge(book)
        else:
            raise CommittableProtocolError(
                "duplicate_summary",
                f"two summaries of subtask {subtask} for checkpoint {self.checkpoint_id}: a writer sends one for each"
                " checkpoint",
            )

    def add(self, subtask: int, payload: Any) -> None:
        """A committable has come.

        :raises CommittableProtocolError: when it was not announced
        """
        book = self.books.get(subtask)
        if book is None:
            raise CommittableProtocolError(
                "not_announced",
                f"committable {payload!r} of subtask {subtask} for checkpoint {self.checkpoint_id} comes without, or"
                " ahead of, its summary",
            )
        book.add(payload)

    @property
    def is_fully_received(self) -> bool:
        """Whether all announced committables have come. (Not whether every subtask has announced some.)"""
        return all(book.is_fully_received for book in self.books.values())

    @property
    def is_settled(self) -> bool:
        """Whether all announced committables have come and have an outcome."""
        return all(book.is_fully_received and not book.pending for book in self.books.values())

    @property
    def is_finished(self) -> bool:
        """Whether these were drained, too: no work is left."""
        return all(book.is_finished for book in self.books.values())

    def requests(self, *, only_fully_received: bool) -> list[CommitRequest]:
        """Those without an outcome, by subtask: of all subtasks, or of those that have sent all they announced."""
        return [
            request
            for _, book in sorted(self.books.items())
            if book.is_fully_received or not only_fully_received
            for request in book.pending
        ]

    def drain(self) -> list[Any]:
        """Take out the committed ones, by subtask."""
        return [payload for _, book in sorted(self.books.items()) for payload in book.drain()]

    def describe_missing(self) -> str:
        """The missing committables, for a message."""
        return ", ".join(
            f"subtask {subtask}: {book.received} of {book.expected}"
            for subtask, book in sorted(self.books.items())
            if not book.is_fully_received
        )
