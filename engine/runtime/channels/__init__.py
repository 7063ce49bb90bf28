"""The connections between two tasks, and their ends. ``outputs`` splits the output of operators over channels;
``output_queue`` is the sender's half of a channel, ``channel`` the receiver's. ``checkpointed_input_gate`` reads the
channels of a task and carries out the instructions of its barrier handler; ``watermark_valve`` combines their event
time. ``debloating`` sets their credit, ``floating_credit`` lends them more. ``host_link`` is what those that leave a
host share. ``traced_batch`` carries causes, in a run that keeps a ledger of them.
"""

from __future__ import annotations

from engine.runtime.channels.channel import Channel as Channel
from engine.runtime.channels.checkpointed_input_gate import CheckpointedInputGate as CheckpointedInputGate
from engine.runtime.channels.debloating import TaskDebloater as TaskDebloater
from engine.runtime.channels.floating_credit import FloatingCredit as FloatingCredit
from engine.runtime.channels.host_link import HostLink as HostLink, links_of_hosts as links_of_hosts
from engine.runtime.channels.output_queue import (
    ChannelSettings as ChannelSettings,
    Element as Element,
    Numbered as Numbered,
    Sender as Sender,
    kind_of as kind_of,
)
from engine.runtime.channels.outputs import ChainOutput as ChainOutput, RecordWriter as RecordWriter
from engine.runtime.channels.traced_batch import TracedBatch as TracedBatch
from engine.runtime.channels.watermark_valve import WatermarkValve as WatermarkValve
