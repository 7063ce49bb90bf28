"""What real channels need in addition to the vectors: a sender, a clock, elements made from operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.events import (
    AlignmentType,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    SnapshotKind,
)
from engine.graph.plan import ChannelPlan
from engine.runtime.channels import Channel, ChannelSettings, Element
from engine.runtime.config import CostModel
from engine.runtime.kernel import Kernel
from tests.conformance.barrier.observed import NS_PER_MS, Operation, Vector
from tests.conformance.compare import MalformedVector

_PLENTY = 1_000_000


class Sender:
    """The task at the other end, as far as a channel uses it."""

    name = "sender"

    def __init__(self) -> None:
        self.full_outputs = 0

    def output_filled(self) -> None:
        self.full_outputs += 1

    def credit_returned(self) -> None:
        self.full_outputs -= 1

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """Called as in a task; the replay asks the channel-state writer itself."""


class Tapped(Channel):
    """A channel that records when it was resumed."""

    def __init__(self, index: int) -> None:
        super().__init__(
            ChannelPlan(index, 0, 0, index, 0, 1, 0, index),
            Sender(),  # type: ignore[arg-type]
            "receiver",
            ChannelSettings(Kernel(start_ns=0), CostModel(), 0, _PLENTY, 1, None),
        )
        self.resumes = 0
        self.sender_resumes = 0

    def resume(self) -> None:
        self.resumes += 1
        super().resume()

    def resume_sender(self) -> None:
        self.sender_resumes += 1
        super().resume_sender()


class Clock:
    """Virtual time and the timers that wait for it. Timers run in the order of their time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.armed: list[int] = []
        self._timers: list[tuple[int, int]] = []

    def arm(self, at_ns: int, checkpoint_id: int) -> None:
        """A timer for ``checkpoint_id`` at ``at_ns``."""
        self._timers.append((at_ns, checkpoint_id))
        self.armed.append(checkpoint_id)

    def take_due(self) -> list[int]:
        """Checkpoint ids of the timers whose time has come."""
        due = sorted(timer for timer in self._timers if timer[0] <= self.now_ns)
        self._timers = [timer for timer in self._timers if timer[0] > self.now_ns]
        return [checkpoint_id for _, checkpoint_id in due]

    def carries_out(self, operation: Operation, fire_timers: Callable[[], None]) -> bool:
        """Whether the operation concerns only time; it is carried out then."""
        match operation:
            case ["advance_ms", amount]:
                self.now_ns += amount * NS_PER_MS
                fire_timers()
            case ["advance_ms_passive", amount]:
                self.now_ns += amount * NS_PER_MS
            case ["fire_timers"]:
                fire_timers()
            case _:
                return False
        return True


def barrier_of(vector: Vector, checkpoint_id: int, given: list[dict[str, Any]], now_ns: int) -> CheckpointBarrier:
    """The barrier for an operation with these optional settings."""
    settings = given[0] if given else {}
    timeout_ms = settings.get("timeout_ms", vector.get("timeout_ms"))
    kind = settings.get("kind") or _default_kind(vector, timeout_ms)
    timestamp_ns = settings["ts_ms"] * NS_PER_MS if "ts_ms" in settings else now_ns
    return CheckpointBarrier(checkpoint_id, timestamp_ns, _options(vector, kind, timeout_ms))


def _default_kind(vector: Vector, timeout_ms: int | None) -> str:
    mode: str = vector["mode"]
    if mode == "aligned_timeout" and timeout_ms is None:
        return "aligned"
    return mode


def _options(vector: Vector, kind: str, timeout_ms: int | None) -> CheckpointOptions:
    snapshot = SnapshotKind.SAVEPOINT if kind == "savepoint" else SnapshotKind.CHECKPOINT
    if vector["mode"] == "at_least_once":
        return CheckpointOptions(AlignmentType.AT_LEAST_ONCE, snapshot)
    match kind:
        case "aligned" | "savepoint":
            return CheckpointOptions(AlignmentType.ALIGNED, snapshot)
        case "unaligned":
            return CheckpointOptions(AlignmentType.UNALIGNED)
        case "aligned_timeout":
            if timeout_ms is None:
                raise MalformedVector("a barrier that may time out has no timeout")
            return CheckpointOptions(AlignmentType.ALIGNED, aligned_timeout_ns=timeout_ms * NS_PER_MS)
        case _:
            raise MalformedVector(f"unknown kind of barrier {kind!r}")


def element_of(operation: Operation) -> Element:
    """The element that an operation other than a barrier puts into a channel."""
    match operation:
        case ["rec", _, name, *_]:
            return Batch([name])
        case ["cancel", _, checkpoint_id]:
            return CancelCheckpointMarker(checkpoint_id)
        case ["eop", _]:
            return EndOfPartition()
        case ["eod", _]:
            return EndOfData()
        case _:
            raise MalformedVector(f"unknown operation {operation}")
