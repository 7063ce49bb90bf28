"""When to snapshot and how to roll back: one small class per protocol, behind one interface."""
from __future__ import annotations

from engine.protocols.barriers import AlignedBarriers, AtLeastOnceBarriers, NoCheckpoints
from engine.protocols.interface import CheckpointProtocol
from engine.protocols.registry import PROTOCOLS, protocol_named

__all__ = [
    "PROTOCOLS",
    "AlignedBarriers",
    "AtLeastOnceBarriers",
    "CheckpointProtocol",
    "NoCheckpoints",
    "protocol_named",
]
