"""The observations of a replay, in the words of the vector format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CheckpointBarrier

NS_PER_MS = 1_000_000

Vector = dict[str, Any]
Operation = list[Any]
Marker = list[Any]
"""``["ckpt", id]``, ``["abort", id]``, ``["eop", channel]`` or ``["event", name]``."""

ABORT_NOTIFICATION = "abort_notification"

_REASONS = {
    CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: "cancel_marker",
    CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED: "subsumed",
    CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM: "end_of_stream",
}

_KINDS = {
    AlignmentType.ALIGNED: "aligned",
    AlignmentType.FORCED_ALIGNED: "aligned",
    AlignmentType.UNALIGNED: "unaligned",
    AlignmentType.AT_LEAST_ONCE: "at_least_once",
}


def kind_of(barrier: CheckpointBarrier) -> str:
    """The format's name for the form of a barrier."""
    return _KINDS[barrier.options.alignment]


@dataclass
class Observed:
    """Everything an expectation can name; ``problems`` are breaches that have no field."""

    triggered: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    abort_reasons: dict[int, str] = field(default_factory=dict)
    output: list[str | Marker] = field(default_factory=list)
    events: list[str | Marker] = field(default_factory=list)
    inflight: dict[int, list[str]] = field(default_factory=dict)
    inflight_counts_after: list[dict[int, int]] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)
    metrics: dict[int, dict[str, int]] = field(default_factory=dict)
    blocked_after: list[list[int]] = field(default_factory=list)
    resumed_after: list[list[int]] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    downstream: list[str | Marker] = field(default_factory=list)
    channel_state_failed: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    told_before_channel_state_ended: bool = True
    problems: list[str] = field(default_factory=list)

    def record(self, name: str) -> None:
        self.output.append(name)
        self.events.append(name)

    def checkpoint(self, barrier: CheckpointBarrier) -> None:
        marker = ["ckpt", barrier.checkpoint_id]
        self.triggered.append(barrier.checkpoint_id)
        self.kinds[barrier.checkpoint_id] = kind_of(barrier)
        self.output.append(marker)
        self.events.append(marker)

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason | str) -> None:
        """The task was told that there will be no checkpoint, or that it is aborted."""
        self.aborted.append(checkpoint_id)
        self.abort_reasons[checkpoint_id] = reason if isinstance(reason, str) else _REASONS.get(reason, reason.name)
        self.events.append(["abort", checkpoint_id])

    def measure(self, checkpoint_id: int, metrics: AlignmentMetrics) -> None:
        """The alignment of a checkpoint, as far as it is known now."""
        self.metrics[checkpoint_id] = {
            "alignment_ms": metrics.alignment_ns // NS_PER_MS,
            "start_delay_ms": metrics.start_delay_ns // NS_PER_MS,
            "bytes_processed_during_alignment": metrics.bytes_processed_during_alignment,
        }
