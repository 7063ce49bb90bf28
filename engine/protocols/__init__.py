"""When to snapshot and how to roll back: one small class per protocol, behind one interface."""

from __future__ import annotations

from engine.protocols.acking.mode import RecordAcking
from engine.protocols.barriers import (
    AlignedBarriers,
    AlignedWithTimeoutBarriers,
    AtLeastOnceBarriers,
    NoCheckpoints,
    UnalignedBarriers,
)
from engine.protocols.interface import CheckpointProtocol
from engine.protocols.protocol_names import PROTOCOLS, protocol_named

__all__ = [
    "PROTOCOLS",
    "AlignedBarriers",
    "AlignedWithTimeoutBarriers",
    "AtLeastOnceBarriers",
    "CheckpointProtocol",
    "NoCheckpoints",
    "RecordAcking",
    "UnalignedBarriers",
    "protocol_named",
]
