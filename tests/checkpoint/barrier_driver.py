"""A task's input side in miniature: channels, blocking and records around a real barrier handler.

It reads the operations of the barrier vectors. Each input is delivered at once and everything that may be consumed is,
earliest arrival first; what waits behind a blocked channel is consumed as soon as the channel is resumed. The handler
is validated after every event.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from engine.checkpoint.aligned import AlignedBarrierHandler
from engine.checkpoint.at_least_once import AtLeastOnceTracker
from engine.checkpoint.barrier_handler import BarrierHandler
from engine.checkpoint.instructions import (
    AbortCheckpoint,
    AlignmentMetrics,
    BlockChannel,
    HandlerInstructions,
    ResumeChannels,
    TriggerSnapshot,
)
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions

MS = 1_000_000

Operation = list[Any]

HANDLERS: dict[str, type[BarrierHandler]] = {
    "aligned": AlignedBarrierHandler,
    "at_least_once": AtLeastOnceTracker,
}


class BarrierDriver:
    """Drives one handler and records what it decides."""

    def __init__(
        self, mode: str, channels: int, after_tasks_finish: bool = True, *, eager: bool = True
    ) -> None:
        self.handler = HANDLERS[mode](channels, after_tasks_finish)
        self.alignment = AlignmentType.AT_LEAST_ONCE if mode == "at_least_once" else AlignmentType.ALIGNED
        self.after_tasks_finish = after_tasks_finish
        self.now_ns = 0
        self.blocked: set[int] = set()
        self.output: list[Any] = []
        self.events: list[Any] = []
        self.triggered: list[int] = []
        self.aborted: list[int] = []
        self.reasons: dict[int, str] = {}
        self.metrics: dict[int, AlignmentMetrics] = {}
        self.ever_resumed: list[int] = []
        self._eager = eager
        self._queues: list[deque[tuple[int, Operation]]] = [deque() for _ in range(channels)]
        self._arrivals = 0

    def apply(self, operation: Operation) -> None:
        """One operation of a vector."""
        match operation:
            case ["advance_ms", amount]:
                self.now_ns += amount * MS
            case ["rpc_trigger", checkpoint_id, *options]:
                barrier = self._barrier(checkpoint_id, options)
                self._execute(self.handler.on_trigger(barrier, self.now_ns))
            case ["source_barrier", channel, checkpoint_id, *options]:
                barrier = self._barrier(checkpoint_id, options)
                self._execute(self.handler.on_barrier(channel, barrier, self.now_ns))
            case ["poll_all"]:
                self._consume_all()
            case ["rec" | "barrier" | "cancel" | "eop" | "eod", channel, *_]:
                self._queues[channel].append((self._arrivals, operation))
                self._arrivals += 1
            case _:
                raise AssertionError(f"operation {operation} is not for this driver")
        if self._eager:
            self._consume_all()

    def waiting(self) -> int:
        """Elements that have not been consumed."""
        return sum(map(len, self._queues))

    def _consume_all(self) -> None:
        while True:
            ready = [
                (queue[0][0], channel)
                for channel, queue in enumerate(self._queues)
                if queue and channel not in self.blocked
            ]
            if not ready:
                return
            _, channel = min(ready)
            self._consume(channel, self._queues[channel].popleft()[1])

    def _consume(self, channel: int, operation: Operation) -> None:
        match operation:
            case ["rec", _, name, *options]:
                self.output.append(name)
                self.events.append(name)
                self.handler.on_bytes(options[0].get("bytes", 0) if options else 0)
            case ["barrier", _, checkpoint_id, *options]:
                barrier = self._barrier(checkpoint_id, options)
                self._execute(self.handler.on_barrier(channel, barrier, self.now_ns))
            case ["cancel", _, checkpoint_id]:
                marker = CancelCheckpointMarker(checkpoint_id)
                self._execute(self.handler.on_cancel(channel, marker, self.now_ns))
            case ["eop", _]:
                self.events.append(["eop", channel])
                self._execute(self.handler.on_end_of_partition(channel, self.now_ns))

    def _barrier(self, checkpoint_id: int, options: list[dict[str, Any]]) -> CheckpointBarrier:
        given = options[0] if options else {}
        timestamp_ns = given["ts_ms"] * MS if "ts_ms" in given else self.now_ns
        return CheckpointBarrier(checkpoint_id, timestamp_ns, CheckpointOptions(self.alignment))

    def _execute(self, instructions: HandlerInstructions) -> None:
        for instruction in instructions:
            match instruction:
                case BlockChannel(channel):
                    assert channel not in self.blocked, f"channel {channel} is blocked twice"
                    self.blocked.add(channel)
                case ResumeChannels(channels):
                    assert self.blocked.issuperset(channels), f"{channels} are not all blocked"
                    self.blocked.difference_update(channels)
                    self.ever_resumed += channels
                case TriggerSnapshot(barrier, metrics):
                    self.triggered.append(barrier.checkpoint_id)
                    self.metrics[barrier.checkpoint_id] = metrics
                    self.output.append(["ckpt", barrier.checkpoint_id])
                    self.events.append(["ckpt", barrier.checkpoint_id])
                case AbortCheckpoint(checkpoint_id, reason):
                    self.aborted.append(checkpoint_id)
                    self.reasons[checkpoint_id] = reason.name
                    self.events.append(["abort", checkpoint_id])
        assert set(self.handler.blocked_channels) == self.blocked
        self.handler.validate()
