"""The life of one subtask's checkpoints as rules of a search; subclasses define its state, and what must hold."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from engine.checkpoint.coordinator.shared_state_registry import UnknownPlaceholderError
from state_backends.snapshots import SnapshotType
from tests.state_backends.rows.support import CHECKPOINT, Job


class LifeOfCheckpoints(RuleBasedStateMachine):
    """Several checkpoints under way, aborted at any point; notices late, lost, twice, out of order."""

    def begin_with(self, job: Job) -> None:
        self.job = job
        self.next_id = 1
        self.uploaded: set[int] = set()
        self.acknowledged: set[int] = set()
        self.savepoints: set[int] = set()

    @property
    def has_begun(self) -> bool:
        return hasattr(self, "job")

    def start_one(self, snapshot_type: SnapshotType = CHECKPOINT) -> int:
        number, self.next_id = self.next_id, self.next_id + 1
        self.job.start(number, snapshot_type)
        return number

    def may_refuse(self) -> bool:
        """Whether an acknowledgement may name a shared file that is gone."""
        return False

    def _one_of(self, data: st.DataObject, numbers: set[int]) -> int | None:
        return data.draw(st.sampled_from(sorted(numbers))) if numbers else None

    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        number = self._one_of(data, set(self.job.pending) - self.uploaded)
        if number is not None:
            self.job.upload(number)
            self.uploaded.add(number)

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        number = self._one_of(data, (set(self.job.pending) & self.uploaded) - self.acknowledged - self.savepoints)
        if number is not None:
            try:
                self.job.acknowledge(number)
            except UnknownPlaceholderError:
                # H1: it cannot complete.
                assert self.may_refuse()
                self.job.abort(number)
            else:
                self.acknowledged.add(number)

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        number = self._one_of(data, set(self.job.pending) & self.acknowledged)
        if number is not None:
            self.job.complete(number)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        number = self._one_of(data, set(self.job.pending))
        if number is not None:
            self.job.abort(number)

    @precondition(lambda self: self.job.notices)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "arrives twice", "is lost"]))
    def deliver(self, data: st.DataObject, fate: str) -> None:
        """Any of those under way, since messages of different kinds may overtake each other."""
        notice = self.job.notices.pop(data.draw(st.integers(0, len(self.job.notices) - 1)))
        for _ in range(2 if fate == "arrives twice" else 1):
            self.job.notices.insert(0, notice)
            self.job.deliver(lost=fate == "is lost")
