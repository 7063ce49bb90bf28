"""The failure budget: how many checkpoints may fail in a row before the job does (Flink: ``CheckpointFailureManager``).

Rules
-----
* Only counted reasons count, once per checkpoint id; a failure without an id counts each time.
* Ids not above the newest completed one are ignored. A newer completion clears the count.
* More than ``tolerable_failures`` in a row fail the job and clear the count. ``None`` tolerates any number.
* A failure is *job level* when its reason is pre-flight or no task is to blame: ignored for savepoints. Otherwise it
  is *task level*: a synchronous savepoint then always fails the job, since its tasks would wait for it forever.
"""

from __future__ import annotations

from engine.checkpoint.failure_reasons import CheckpointFailureReason


class CheckpointFailureManager:
    """Counts failures in a row. ``tolerable_failures``: how many are tolerated, ``None`` = any number."""

    def __init__(self, tolerable_failures: int | None = 0) -> None:
        assert tolerable_failures is None or tolerable_failures >= 0, tolerable_failures
        self._tolerable = tolerable_failures
        self._count = 0
        self._counted_ids: set[int] = set()
        self._newest_completed: int | None = None

    @property
    def failures_in_a_row(self) -> int:
        """The current count."""
        return self._count

    def on_completed(self, checkpoint_id: int) -> None:
        """A checkpoint or savepoint has completed."""
        if self._newest_completed is None or checkpoint_id > self._newest_completed:
            self._newest_completed = checkpoint_id
            self._clear()

    def on_failure(
        self,
        reason: CheckpointFailureReason,
        checkpoint_id: int | None,
        *,
        is_savepoint: bool = False,
        is_synchronous: bool = False,
        by_task: bool = False,
    ) -> bool:
        """Account for one failure; whether the job has to fail now."""
        if reason.pre_flight or not by_task:
            return not is_savepoint and self._exceeds_budget(reason, checkpoint_id)
        if is_savepoint and is_synchronous:
            return True
        return self._exceeds_budget(reason, checkpoint_id)

    def _exceeds_budget(self, reason: CheckpointFailureReason, checkpoint_id: int | None) -> bool:
        if self._tolerable is None or not reason.counted:
            return False
        if checkpoint_id is None:
            self._count += 1
        else:
            newest = self._newest_completed
            if (newest is not None and checkpoint_id <= newest) or checkpoint_id in self._counted_ids:
                return False
            self._counted_ids.add(checkpoint_id)
            self._count += 1
        if self._count <= self._tolerable:
            return False
        self._clear()
        return True

    def _clear(self) -> None:
        self._count = 0
        self._counted_ids.clear()

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._counted_ids) <= self._count, (self._counted_ids, self._count)
        assert self._tolerable is None or self._count <= self._tolerable, self._count

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        return (self._count, tuple(sorted(self._counted_ids)), self._newest_completed)
