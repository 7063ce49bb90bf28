"""The state of a committer: the books of all checkpoints (Flink: ``CommittableCollector``).

Rules:

* State is one element for each book, so a change of parallelism redistributes whole books, never parts of one.
* A restore merges its books under one label, because other subtasks may send now. By Flink's rules the label is the
  number of the committer. By ours no writer has this label. But a book with committables still in flight keeps its own
  label, so that they find it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from operators.transactions.committables import (
    COMMITTABLE,
    END_OF_INPUT,
    SUMMARY,
    CheckpointCommittables,
    CommitRequest,
    CommittableProtocolError,
    Message,
    SubtaskCommittables,
)
from state_backends.base import Shape, list_of, number, positive, row, whole

RESTORED = -1
"""The label (subtask) of complete books after a restore."""

BookState = tuple[Any, ...]
"""``(checkpoint, subtask, subtasks, expected, drained, failed, [(payload, retries), ...])``"""


def book_shape(committable: Shape) -> Shape:
    """The shape of a book with committables of this shape."""
    return row(whole, number, positive, whole, whole, whole, list_of(row(committable, whole)))


class CommittableCollector:
    """The books of one committer, by checkpoint."""

    def __init__(self) -> None:
        self._checkpoints: dict[int, CheckpointCommittables] = {}

    def add(self, message: Message) -> None:
        """Book a message by the checkpoint that it names.

        :raises CommittableProtocolError: when it does not fit the messages before
        """
        kind, checkpoint_id, subtask = message[:3]
        checkpoint = self._checkpoints.get(checkpoint_id)
        if kind == SUMMARY:
            subtasks, count = message[3:]
            if checkpoint is None:
                checkpoint = self._open(checkpoint_id, subtasks)
            checkpoint.subtasks = subtasks
            checkpoint.announce(subtask, count)
        elif kind != COMMITTABLE:
            raise CommittableProtocolError(
                "unknown_message", f"a committer takes summaries and committables, not {message!r}"
            )
        elif checkpoint is None:
            raise CommittableProtocolError(
                "not_announced",
                f"committable {message[3]!r} of subtask {subtask} comes without a summary for checkpoint"
                f" {checkpoint_id}",
            )
        else:
            checkpoint.add(subtask, message[3])

    def _open(self, checkpoint_id: int, subtasks: int) -> CheckpointCommittables:
        opened = CheckpointCommittables(checkpoint_id, subtasks, is_end_of_input=checkpoint_id == END_OF_INPUT)
        self._checkpoints[checkpoint_id] = opened
        return opened

    def up_to(self, checkpoint_id: int) -> list[CheckpointCommittables]:
        """The books of checkpoints up to this one, oldest first."""
        return [self._checkpoints[known] for known in sorted(self._checkpoints) if known <= checkpoint_id]

    def remove(self, checkpoint: CheckpointCommittables) -> None:
        """Remove a finished checkpoint."""
        del self._checkpoints[checkpoint.checkpoint_id]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is booked."""
        return not self._checkpoints

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> list[BookState]:
        """All books, as plain values."""
        return [
            (
                checkpoint_id,
                subtask,
                checkpoint.subtasks,
                book.expected,
                book.drained,
                book.failed + len(book.requests) - len(book.kept),
                [(request.committable, request.retries) for request in book.kept],
            )
            for checkpoint_id, checkpoint in sorted(self._checkpoints.items())
            for subtask, book in sorted(checkpoint.books.items())
        ]

    def restore(self, state: Iterable[BookState], label: int | None = None) -> None:
        """Take over books. ``label``: the subtask that all of them are filed under; ``None`` = by our rules."""
        for checkpoint_id, subtask, subtasks, expected, drained, failed, requests in state:
            book = SubtaskCommittables(
                expected, [CommitRequest(payload, retries) for payload, retries in requests], drained, failed
            )
            if label is not None:
                subtask = label
            elif book.is_fully_received:
                subtask = RESTORED
            checkpoint = self._checkpoints.get(checkpoint_id) or self._open(checkpoint_id, subtasks)
            if subtask in checkpoint.books:
                checkpoint.books[subtask].merge(book)
            else:
                checkpoint.books[subtask] = book

    def drop_behind(self, checkpoint_id: int) -> int:
        """Forget the books of later checkpoints; returns their number of committables."""
        later = [checkpoint for known, checkpoint in self._checkpoints.items() if known > checkpoint_id]
        for checkpoint in later:
            self.remove(checkpoint)
        return sum(len(book.requests) for checkpoint in later for book in checkpoint.books.values())
