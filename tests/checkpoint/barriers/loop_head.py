"""A task in a loop inside a real input gate: the driver of the barrier vectors, with back edges."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.checkpoint.barriers import (
    BackEdgeTracker,
    BarrierHandler,
    InputCapture,
    SingleCheckpointHandler,
    TriggerSnapshot,
)
from tests.conformance.barrier.input_side import InputReplay


class LoopHead(InputReplay):
    """The input side of the head of a loop: ``channels`` of them, those in ``back_edges`` lead back."""

    def __init__(
        self,
        channels: int,
        back_edges: Collection[int],
        *,
        after_tasks_finish: bool = True,
        delivery: str = "eager",
        timeout_ms: int | None = None,
        at_least_once: bool = False,
    ) -> None:
        def handler(count: int, capture: InputCapture) -> BarrierHandler:
            if at_least_once:
                return BackEdgeTracker(count, after_tasks_finish, capture=capture, back_edges=back_edges)
            return SingleCheckpointHandler(count, after_tasks_finish, capture=capture, back_edges=back_edges)

        vector: dict[str, Any] = {
            # Back edges are captured in every mode; the barriers state their own form.
            "mode": "aligned_timeout",
            "scope": "input",
            "channels": channels,
            "delivery": delivery,
            "timeout_ms": timeout_ms,
            "checkpoints_after_tasks_finish": after_tasks_finish,
            "input": [],
            "expect": {},
        }
        super().__init__(vector, handler)
        self.is_at_least_once = at_least_once
        self.unaligned: set[int] = set()
        """Checkpoints whose snapshot was taken before all barriers had come."""
        if at_least_once:
            self._vector = {**vector, "mode": "at_least_once"}

    def snapshot_due(self, due: TriggerSnapshot) -> None:
        """The cut is here; while back edges are logged, the checkpoint is not complete yet."""
        barrier = due.barrier
        if barrier.is_priority:
            self.unaligned.add(barrier.checkpoint_id)
        if barrier.is_priority or barrier.checkpoint_id not in self._state.collecting:
            super().snapshot_due(due)
            return
        self.observed.inflight.setdefault(barrier.checkpoint_id, [])
        self.observed.checkpoint(barrier)
        self._carry_out(self._protocol.on_snapshot_due(barrier, due.metrics), due)
