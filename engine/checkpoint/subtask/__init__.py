"""A subtask's part in a checkpoint: ``task_protocol`` says what a due snapshot, a notification and a finished upload
lead to, ``task_instructions`` what it answers. ``channel_state_writer`` collects records in flight;
``upstream_recovery`` says when the channels of a gate may go on after their restored records.
"""

from __future__ import annotations

from engine.checkpoint.subtask.channel_state_writer import ChannelState, ChannelStateWriter
from engine.checkpoint.subtask.task_instructions import (
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    DeclineCheckpoint,
    DiscardSnapshot,
    FailTask,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    StopTask,
    TakeSnapshot,
    TaskInstructions,
)
from engine.checkpoint.subtask.task_protocol import TaskCheckpointProtocol
from engine.checkpoint.subtask.upstream_recovery import UpstreamRecoveryTracker

__all__ = [
    "AcknowledgeCheckpoint",
    "BroadcastCancelMarker",
    "CancelSnapshot",
    "ChannelState",
    "ChannelStateWriter",
    "DeclineCheckpoint",
    "DiscardSnapshot",
    "FailTask",
    "NotifyOperatorsAborted",
    "NotifyOperatorsComplete",
    "NotifyOperatorsSubsumed",
    "StopTask",
    "TakeSnapshot",
    "TaskCheckpointProtocol",
    "TaskInstructions",
    "UpstreamRecoveryTracker",
]
