"""What is between two tasks, and at the ends of it. ``outputs`` splits what operators emit over channels;
``output_queue`` is the sender's half of a channel, ``channel`` the receiver's. ``checkpointed_input_gate`` reads the
channels of a task and carries out what its barrier handler says; ``watermark_valve`` combines their event time,
``debloating`` sets their credit. ``traced_batch`` carries causes, when somebody wants to know them.
"""

from __future__ import annotations

from engine.runtime.channels.channel import Channel
from engine.runtime.channels.checkpointed_input_gate import CheckpointedInputGate
from engine.runtime.channels.debloating import TaskDebloater
from engine.runtime.channels.output_queue import ChannelSettings, Element, Numbered, Sender, kind_of
from engine.runtime.channels.outputs import ChainOutput, RecordWriter
from engine.runtime.channels.traced_batch import TracedBatch
from engine.runtime.channels.watermark_valve import WatermarkValve

__all__ = [
    "ChainOutput",
    "Channel",
    "ChannelSettings",
    "CheckpointedInputGate",
    "Element",
    "Numbered",
    "RecordWriter",
    "Sender",
    "TaskDebloater",
    "TracedBatch",
    "WatermarkValve",
    "kind_of",
]
