"""Barrier handlers inside a real input gate, driven by the operations of the barrier vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.checkpoint.barriers import BarrierHandler, InputCapture, SingleCheckpointHandler
from tests.conformance.barrier.input_side import InputReplay

MODES = ("aligned", "at_least_once", "unaligned", "aligned_timeout")
UNALIGNED = ("unaligned", "aligned_timeout")
EXACTLY_ONCE = ("aligned", "unaligned", "aligned_timeout")


def replay(
    mode: str,
    channels: int,
    after_tasks_finish: bool = True,
    *,
    delivery: str = "eager",
    timeout_ms: int | None = None,
    local_channels: tuple[int, ...] = (),
    source_channels: tuple[int, ...] = (),
    handler: Callable[[int, InputCapture], BarrierHandler] | None = None,
) -> InputReplay:
    """The input side of a new task; see ``InputReplay.apply``."""
    vector: dict[str, Any] = {
        "mode": mode,
        "scope": "input",
        "channels": channels,
        "delivery": delivery,
        "timeout_ms": timeout_ms,
        "checkpoints_after_tasks_finish": after_tasks_finish,
        "local_channels": local_channels,
        "input": [],
        "expect": {"source_channels": source_channels},
    }
    return InputReplay(vector, handler)


def handler_of(
    channels: int, after_tasks_finish: bool = True, source_channels: tuple[int, ...] = ()
) -> SingleCheckpointHandler:
    """The handler alone, as in an unaligned or an alternating task."""
    capture = InputCapture(channels)
    return SingleCheckpointHandler(channels, after_tasks_finish, capture=capture, source_channels=source_channels)
