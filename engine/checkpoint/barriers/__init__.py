"""When a task takes its snapshot: one handler for each way to treat barriers (``aligned``, ``unaligned``,
``alternating``, ``at_least_once``; with a channel that leads back, ``back_edges`` and ``back_edge_tracker``).
``barrier_handler`` is the face that all of them show, ``single_checkpoint`` what most of them share.
``handler_instructions`` is what they answer.
``channel_capture`` says which records in flight belong to an unaligned checkpoint.
"""

from __future__ import annotations

from engine.checkpoint.barriers.alternating import AlternatingBarrierHandler
from engine.checkpoint.barriers.at_least_once import AtLeastOnceTracker
from engine.checkpoint.barriers.back_edge_tracker import BackEdgeTracker
from engine.checkpoint.barriers.back_edges import BackEdgeBarrierHandler
from engine.checkpoint.barriers.barrier_handler import BarrierHandler, barrier_fingerprint
from engine.checkpoint.barriers.channel_capture import ChannelCapture, InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    AbortCheckpoint,
    AlignmentFinished,
    AlignmentMetrics,
    ArmAlignmentTimer,
    BlockChannel,
    HandlerInstruction,
    PromoteBarrier,
    ResumeChannels,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.barriers.single_checkpoint import AlignedBarrierHandler

__all__ = [
    "AbortCheckpoint",
    "AlignedBarrierHandler",
    "AlignmentFinished",
    "AlignmentMetrics",
    "AlternatingBarrierHandler",
    "ArmAlignmentTimer",
    "AtLeastOnceTracker",
    "BackEdgeBarrierHandler",
    "BackEdgeTracker",
    "BarrierHandler",
    "BlockChannel",
    "ChannelCapture",
    "HandlerInstruction",
    "InputCapture",
    "PromoteBarrier",
    "ResumeChannels",
    "StartCapture",
    "StopCapture",
    "TriggerSnapshot",
    "barrier_fingerprint",
]
