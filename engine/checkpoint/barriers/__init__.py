"""When a task takes its snapshot: one handler for each way to treat barriers (``aligned``, ``unaligned``,
``alternating``, ``at_least_once``; with a channel that leads back, ``back_edges`` and ``back_edge_tracker``).
``barrier_handler`` is the interface of all of them, ``single_checkpoint`` the common part of most of them.
``handler_instructions`` are their answers.
``channel_capture`` decides which records in flight belong to an unaligned checkpoint.
"""

from __future__ import annotations

from engine.checkpoint.barriers.alternating import AlternatingBarrierHandler as AlternatingBarrierHandler
from engine.checkpoint.barriers.at_least_once import AtLeastOnceTracker as AtLeastOnceTracker
from engine.checkpoint.barriers.back_edge_tracker import BackEdgeTracker as BackEdgeTracker
from engine.checkpoint.barriers.back_edges import BackEdgeBarrierHandler as BackEdgeBarrierHandler
from engine.checkpoint.barriers.barrier_handler import (
    BarrierHandler as BarrierHandler,
    barrier_fingerprint as barrier_fingerprint,
)
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
from engine.checkpoint.barriers.single_checkpoint import AlignedBarrierHandler as AlignedBarrierHandler
