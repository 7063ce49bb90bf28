"""What the runtime asks of a checkpoint protocol."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from engine.checkpoint.barriers import BarrierHandler, InputCapture
from engine.elements.events import CheckpointOptions


class CheckpointProtocol(Protocol):
    """How the tasks of a job agree on a cut.

    ``name``               what ``--mode`` calls it;
    ``takes_checkpoints``  whether a coordinator runs at all;
    ``consistent_cut``     whether a completed checkpoint may hold no effect of a record behind its cut. The cut
                           oracle takes a difference for a violation where this is true, and for a prediction of
                           duplicates where it is not.
    ``stores_channel_state``  whether records in flight may be part of a checkpoint;
    ``tracks_records``     whether each source record is followed instead, and sent again when it is not acknowledged.
    """

    @property
    def name(self) -> str: ...
    @property
    def takes_checkpoints(self) -> bool: ...
    @property
    def consistent_cut(self) -> bool: ...
    @property
    def stores_channel_state(self) -> bool: ...
    @property
    def tracks_records(self) -> bool: ...

    def options(self) -> CheckpointOptions:
        """What the barriers of a checkpoint carry."""

    def barrier_handler(self, channels: int, capture: InputCapture, back_edges: Collection[int] = ()) -> BarrierHandler:
        """The input side of a task with ``channels`` input channels, whose records in flight ``capture`` follows.
        ``back_edges``: those of the channels that lead back to the task, in a loop."""
