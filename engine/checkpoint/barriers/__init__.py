"""When a task takes its snapshot. ``barrier_handler`` is the contract; ``single_checkpoint`` (exactly-once, with or
without unaligned checkpoints), ``at_least_once`` and ``back_edge_tracker`` (at-least-once in a loop) implement it.
``alignment`` and ``back_edges`` are parts of them, ``handler_instructions`` their answers.
``channel_capture`` decides which records in flight belong to an unaligned checkpoint.
"""

from __future__ import annotations

from engine.checkpoint.barriers.alignment import barrier_fingerprint as barrier_fingerprint
from engine.checkpoint.barriers.at_least_once import AtLeastOnceTracker as AtLeastOnceTracker
from engine.checkpoint.barriers.back_edge_tracker import BackEdgeTracker as BackEdgeTracker
from engine.checkpoint.barriers.barrier_handler import BarrierHandler as BarrierHandler
from engine.checkpoint.barriers.channel_capture import ChannelCapture as ChannelCapture, InputCapture as InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    AbortCheckpoint as AbortCheckpoint,
    AlignmentFinished as AlignmentFinished,
    AlignmentMetrics as AlignmentMetrics,
    ArmAlignmentTimer as ArmAlignmentTimer,
    BlockChannel as BlockChannel,
    HandlerInstruction as HandlerInstruction,
    PromoteBarrier as PromoteBarrier,
    ResumeChannels as ResumeChannels,
    StartCapture as StartCapture,
    StopCapture as StopCapture,
    TriggerSnapshot as TriggerSnapshot,
)
from engine.checkpoint.barriers.single_checkpoint import SingleCheckpointHandler as SingleCheckpointHandler
