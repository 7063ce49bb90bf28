"""The protocols by the names that ``--mode`` takes."""

from __future__ import annotations

from functools import lru_cache

from engine.elements.errors import ConfigurationError
from engine.elements.suggestions import nearest
from engine.protocols.barriers import (
    AlignedBarriers,
    AlignedWithTimeoutBarriers,
    AtLeastOnceBarriers,
    CheckpointProtocol,
    NoCheckpoints,
    RecordAcking,
    UnalignedBarriers,
)

PROTOCOLS: dict[str, CheckpointProtocol] = {
    protocol.name: protocol
    for protocol in (
        AlignedBarriers(),
        UnalignedBarriers(),
        AlignedWithTimeoutBarriers(),
        AtLeastOnceBarriers(),
        RecordAcking(),
        NoCheckpoints(),
    )
}
"""Each with its default settings."""

MODE_ALIASES = {"exactly-once": "aligned"}
"""Other names that ``--mode`` takes, and the protocol that each of them means."""


@lru_cache(64)  # Every judge of a run asks for it, again and again.
def protocol_named(
    name: str, *, checkpoints_after_tasks_finish: bool = True, aligned_timeout_ns: int | None = None
) -> CheckpointProtocol:
    """The protocol called ``name``, with these settings where it has them.

    Raises :class:`ConfigurationError` with a suggestion when there is none.
    """
    protocol = PROTOCOLS.get(MODE_ALIASES.get(name, name))
    if protocol is None:
        known = [*PROTOCOLS, *MODE_ALIASES]
        close = nearest(name, known)
        hint = f"; did you mean {close!r}? Known" if close else "; known"
        raise ConfigurationError(f"there is no mode {name!r}{hint} modes: {', '.join(known)}")
    if isinstance(protocol, AlignedWithTimeoutBarriers):
        return AlignedWithTimeoutBarriers(checkpoints_after_tasks_finish, aligned_timeout_ns or 0)
    return protocol if checkpoints_after_tasks_finish else type(protocol)(False)
