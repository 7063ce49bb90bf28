"""A subtask's part in a checkpoint: ``task_protocol`` has the reactions to a due snapshot, a notification and a
finished upload, ``task_instructions`` its answers. ``channel_state_writer`` collects records in flight,
and decides when the channels of a gate may go on after the restored records.
"""

from __future__ import annotations

from engine.checkpoint.subtask.channel_state_writer import (
    ChannelState as ChannelState,
    ChannelStateWriter as ChannelStateWriter,
    UpstreamRecoveryTracker as UpstreamRecoveryTracker,
)
from engine.checkpoint.subtask.task_instructions import (
    AcknowledgeCheckpoint as AcknowledgeCheckpoint,
    BroadcastCancelMarker as BroadcastCancelMarker,
    CancelSnapshot as CancelSnapshot,
    DeclineCheckpoint as DeclineCheckpoint,
    DiscardSnapshot as DiscardSnapshot,
    FailTask as FailTask,
    NotifyOperatorsAborted as NotifyOperatorsAborted,
    NotifyOperatorsComplete as NotifyOperatorsComplete,
    NotifyOperatorsSubsumed as NotifyOperatorsSubsumed,
    StopTask as StopTask,
    TakeSnapshot as TakeSnapshot,
    TaskInstructions as TaskInstructions,
)
from engine.checkpoint.subtask.task_protocol import TaskCheckpointProtocol as TaskCheckpointProtocol
