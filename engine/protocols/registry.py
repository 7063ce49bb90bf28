"""The protocols by the names that ``--mode`` takes."""

from __future__ import annotations

from difflib import get_close_matches

from engine.elements.errors import ConfigurationError
from engine.protocols.barriers import AlignedBarriers, AtLeastOnceBarriers, NoCheckpoints
from engine.protocols.interface import CheckpointProtocol

PROTOCOLS: dict[str, CheckpointProtocol] = {
    protocol.name: protocol for protocol in (AlignedBarriers(), AtLeastOnceBarriers(), NoCheckpoints())
}

MODE_ALIASES = {"exactly-once": "aligned"}
"""Other names that ``--mode`` takes, and the protocol each stands for."""


def protocol_named(name: str) -> CheckpointProtocol:
    """The protocol called ``name``. Raises :class:`ConfigurationError` with a suggestion when there is none."""
    protocol = PROTOCOLS.get(MODE_ALIASES.get(name, name))
    if protocol is None:
        known = [*PROTOCOLS, *MODE_ALIASES]
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}? Known" if close else "; known"
        raise ConfigurationError(f"there is no mode {name!r}{hint} modes: {', '.join(known)}")
    return protocol
