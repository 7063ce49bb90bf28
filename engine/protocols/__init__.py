"""When to snapshot and how to roll back: one small class per protocol, and the machines of record acking."""

from __future__ import annotations

from engine.protocols.barriers import CheckpointProtocol as CheckpointProtocol
from engine.protocols.protocol_names import PROTOCOLS as PROTOCOLS, protocol_named as protocol_named
