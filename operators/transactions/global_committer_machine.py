"""When the one committer after all writers commits (Flink: ``GlobalCommitterOperator``).

Rules:

* A checkpoint is committed as a whole: when it is complete, all committables of *all* subtasks have come, and all older
  checkpoints are committed. Committers send only for complete checkpoints. So after committers it is committed with its
  last committable, without a notification (``commit_on_input``). After writers the notification decides.
* All committables of a subtask have come when it has sent a summary for this checkpoint or a later one, and all that it
  announced. A subtask that never saw the barrier of an aborted checkpoint sends nothing for it. A subtask whose input
  has ended announces it, and the machine does not wait for it.
* Committables that come after the notification of their checkpoint are committed with the next one.
* A restore commits the committables of its checkpoint. After committers the state may lack some, which they sent later,
  before the *next* barrier. An incomplete checkpoint waits until each has sent its part again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from operators.transactions.commit_rules import CommitRules
from operators.transactions.committable_collector import RESTORED, BookState
from operators.transactions.committables import SUMMARY, CheckpointCommittables, Message
from operators.transactions.committer_machine import (
    CommittedCheckpoint,
    Committer,
    CommittingMachine,
    commit_in_rounds,
    count_nothing,
    is_last,
    retries_exhausted,
)


class GlobalCommitterMachine(CommittingMachine):
    """The machine of the global committer.

    ``commit_on_input``  whether all input is for complete checkpoints, as it comes from committers, not writers.
    """

    def __init__(
        self,
        committer: Committer,
        rules: CommitRules | None = None,
        count: Callable[[str, int], None] = count_nothing,
        *,
        commit_on_input: bool,
    ) -> None:
        super().__init__(committer, rules, count)
        self._commit_on_input = commit_on_input
        self._reported: dict[int, int] = {}
        """By subtask: the checkpoint of its newest summary."""
        self._senders: int | None = None
        """The number of subtasks, once a summary has told it."""
        self._restored_whole: set[int] = set()
        """Checkpoints that the restored state held completely."""

    def add(self, message: Message) -> list[CommittedCheckpoint]:
        if message[0] == SUMMARY:
            _, checkpoint_id, subtask, self._senders, _ = message
            self._reported[subtask] = max(checkpoint_id, self._reported.get(subtask, -1))
        if not is_last(message):
            self.books.add(message)
        if not self._commit_on_input:
            return []
        self.completed_id = max(self.completed_id, message[1])
        return self.commit_covered()

    def restore(self, state: Iterable[BookState], subtask: int, checkpoint_id: int) -> list[CommittedCheckpoint]:
        state = list(state)
        # Books that an earlier restore has filed under one label do not show how many subtasks have sent them.
        senders = Counter(book[0] for book in state if book[1] != RESTORED)
        self._restored_whole = {
            booked_id for booked_id, _, subtasks, *_ in state
            if not self._commit_on_input or senders[booked_id] == subtasks
        }  # fmt: skip
        return super().restore(state, subtask, checkpoint_id)

    def commit_covered(self) -> list[CommittedCheckpoint]:
        done = []
        for checkpoint in self.books.up_to(self.completed_id):
            if not self._is_whole(checkpoint):
                # A later one must not overtake it: readers of the commits expect them in order.
                break
            requests = checkpoint.requests(only_fully_received=False)
            max_retries = self.rules.max_retries
            unfinished = commit_in_rounds(self._committer, requests, max_retries, self._count)
            done.append(CommittedCheckpoint(checkpoint.checkpoint_id, checkpoint.drain()))
            if unfinished:
                raise retries_exhausted(checkpoint.checkpoint_id, unfinished, max_retries)
            self.books.remove(checkpoint)
        return done

    def _is_whole(self, checkpoint: CheckpointCommittables) -> bool:
        if not checkpoint.is_fully_received:
            return False
        if checkpoint.checkpoint_id in self._restored_whole or (self._ended and not self._commit_on_input):
            return True
        return self._senders is not None and self._has_all_reports(checkpoint)

    def _has_all_reports(self, checkpoint: CheckpointCommittables) -> bool:
        senders = checkpoint.subtasks if any(book >= 0 for book in checkpoint.books) else self._senders
        assert senders is not None
        known = checkpoint.checkpoint_id
        # Wait for all subtasks: a silent one may have rows (mutant "not all subtasks awaited").
        return sum(reported >= known for reported in self._reported.values()) >= senders

    def fingerprint(self) -> object:
        reported, restored = sorted(self._reported.items()), sorted(self._restored_whole)
        return repr(self.state()), self.completed_id, self._ended, reported, restored
