"""What a writer hands to a committer, and how a committer keeps books of it (Flink: ``CommittableMessage``,
``SubtaskCommittableManager``, ``CheckpointCommittableManagerImpl``, ``CommitRequestImpl``).

Rules:

* Ahead of each barrier a writer sends a *summary* (checkpoint, subtask, number of writers, how many committables) and
  then exactly that many *committables*. Both are plain tuples, for they may be in flight when a snapshot is taken.
* A committable is booked by the checkpoint that **it** names, never by the last barrier that was seen: where barriers
  do not hold records back, committables of the next checkpoint come ahead of the barrier of this one.
* The book of a subtask counts what was announced. What was committed is *drained* from it, what failed for a known
  reason is counted and dropped. It is finished when all that was announced is one or the other.
* A second summary for a subtask and checkpoint is an error, and so is a committable that nobody has announced. Only
  what writers send at the end of their input may come on top of what they have sent before.
* The outcome of a request: no word is success; *already committed* is success; a *known failure* is counted and
  dropped; an *unknown failure* is raised where it is reported; *retry later* leaves it for the next round, *update and
  retry* does so with another committable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.elements.errors import StateError

SUMMARY, COMMITTABLE = "summary", "committable"
"""The first field of a message."""

END_OF_INPUT = 2**63 - 1
"""The checkpoint that a writer names when it says that nothing more will come from it (Flink: ``EOI``)."""

Message = tuple[Any, ...]
"""``(SUMMARY, checkpoint, subtask, subtasks, count)`` or ``(COMMITTABLE, checkpoint, subtask, payload)``."""


class CommittableProtocolError(StateError):
    """Summaries and committables do not fit together: whoever stands between the writers and the committer has added
    some, or lost some. ``kind`` says how, in one word."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class CommitFailedError(StateError):
    """A committable could not be committed, and it is not known that it never will be: the task fails, and the restore
    tries again. ``kind`` is ``unknown_failure`` or ``retries_exhausted``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def summary(checkpoint_id: int, subtask: int, subtasks: int, count: int) -> Message:
    """``count`` committables for ``checkpoint_id`` follow from ``subtask``, which is one of ``subtasks``."""
    return (SUMMARY, checkpoint_id, subtask, subtasks, count)


def committable(checkpoint_id: int, subtask: int, payload: Any) -> Message:
    """One of those."""
    return (COMMITTABLE, checkpoint_id, subtask, payload)


def messages(checkpoint_id: int, subtask: int, subtasks: int, payloads: Iterable[Any]) -> list[Message]:
    """A summary, and the committables behind it."""
    sent = [committable(checkpoint_id, subtask, payload) for payload in payloads]
    return [summary(checkpoint_id, subtask, subtasks, len(sent)), *sent]


_PENDING, _COMMITTED, _ALREADY, _FAILED = "pending", "committed", "already committed", "failed"


class CommitRequest:
    """One committable in the hands of a committer (Flink: ``Committer.CommitRequest``).

    :ivar committable: what is to be committed
    :ivar retries: how often it was put off so far
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
        """It can never be committed, and the job goes on without it; ``why`` is for the reader of the program."""
        self._tell(_FAILED)

    def signal_failed_with_unknown_reason(self, why: object) -> None:
        """It was not committed, and nobody knows why. Raises :class:`CommitFailedError`."""
        cause = why if isinstance(why, BaseException) else None
        raise CommitFailedError("unknown_failure", f"could not commit {self.committable!r}: {why}") from cause

    def retry_later(self) -> None:
        """Ask again."""
        self._tell(_PENDING)
        self.retries += 1

    def update_and_retry_later(self, payload: Any) -> None:
        """Ask again, for ``payload`` (a part of it is committed, say)."""
        self.committable = payload
        self.retry_later()

    def _tell(self, state: str) -> None:
        self._state, self._told = state, True

    def begin_round(self) -> None:
        """A committer is about to be asked."""
        self._told = False

    def end_round(self) -> None:
        """It was asked: no word is success."""
        if not self._told:
            self._state = _COMMITTED

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is to be done."""
        return self._state != _PENDING

    @property
    def is_committed(self) -> bool:
        """Whether it was a success."""
        return self._state in (_COMMITTED, _ALREADY)

    @property
    def was_committed_before(self) -> bool:
        """Whether it was one already when it was asked for."""
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
        """One has come.

        :raises CommittableProtocolError: when all that were announced had come before
        """
        if self.is_fully_received:
            raise CommittableProtocolError(
                "not_announced", f"committable {payload!r} comes behind all {self.expected} that were announced"
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
        """Those of which the outcome is not known."""
        return [request for request in self.requests if not request.is_finished]

    @property
    def is_finished(self) -> bool:
        """Whether all were drained or have failed."""
        return self.drained + self.failed == self.expected

    def drain(self) -> list[Any]:
        """Take out what was committed, and drop what has failed."""
        committed = [request.committable for request in self.requests if request.is_committed]
        pending = self.pending
        self.failed += len(self.requests) - len(pending) - len(committed)
        self.drained += len(committed)
        self.requests = pending
        return committed

    @property
    def kept(self) -> list[CommitRequest]:
        """What goes into the state: all but what has failed. What was committed and not drained is asked for again
        behind a restore."""
        return [request for request in self.requests if request.is_committed or not request.is_finished]

    def merge(self, other: SubtaskCommittables) -> None:
        """Take over another book: everything adds up."""
        self.expected += other.expected
        self.requests += other.requests
        self.drained += other.drained
        self.failed += other.failed


class CheckpointCommittables:
    """The books of one checkpoint, by subtask.

    :ivar subtasks: how many subtasks send committables, by what they say
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
                " checkpoint, and nobody may repeat it",
            )

    def add(self, subtask: int, payload: Any) -> None:
        """A committable has come.

        :raises CommittableProtocolError: when nothing announces it
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
        """Whether everything that was announced has come. (Not whether every subtask has announced something.)"""
        return all(book.is_fully_received for book in self.books.values())

    @property
    def is_settled(self) -> bool:
        """Whether all that was announced has come, and has an outcome."""
        return all(book.is_fully_received and not book.pending for book in self.books.values())

    @property
    def is_finished(self) -> bool:
        """Whether that was drained, too: nothing is left to be done."""
        return all(book.is_finished for book in self.books.values())

    def requests(self, *, only_fully_received: bool) -> list[CommitRequest]:
        """Those without an outcome, by subtask; of subtasks that have sent all they have announced, or of all."""
        return [
            request
            for _, book in sorted(self.books.items())
            if book.is_fully_received or not only_fully_received
            for request in book.pending
        ]

    def drain(self) -> list[Any]:
        """Take out what was committed, by subtask."""
        return [payload for _, book in sorted(self.books.items()) for payload in book.drain()]

    def describe_missing(self) -> str:
        """What has not come, for a message."""
        return ", ".join(
            f"subtask {subtask}: {book.received} of {book.expected}"
            for subtask, book in sorted(self.books.items())
            if not book.is_fully_received
        )
