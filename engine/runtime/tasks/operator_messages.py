"""What a task says to the operator coordinators of its operators, which live with the job manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.elements.errors import StateError
from state_backends.base import StateBackendError
from state_backends.codec import default_codec

if TYPE_CHECKING:
    from engine.checkpoint.coordinator import TaskId


@dataclass(frozen=True, slots=True)
class OperatorEvent:
    """What an operator sends to its coordinator. ``uid``: its own."""

    uid: str
    task: TaskId
    attempt: int
    event: Any


@dataclass(frozen=True, slots=True)
class BarrierProcessed:
    """A task's snapshot has been taken (Flink: ``AcknowledgeCheckpointEvent``)."""

    checkpoint_id: int
    task: TaskId
    attempt: int


def plain_copy(event: Any, operator: str) -> Any:
    """A copy of an event that shares nothing with it; raises :class:`StateError` when it is no plain value."""
    try:
        return default_codec().copy(event)
    except StateBackendError as error:
        raise StateError(f"operator {operator!r}: an event between it and its coordinator: {error}") from error
