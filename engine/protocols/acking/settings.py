"""Settings of record acking, and its errors, after which a restart cannot help."""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements.errors import ConfigurationError, WeirError


class ReplayLimitError(WeirError):
    """A record was sent again and again, and never acknowledged."""


class UnacknowledgedError(WeirError):
    """Records were lost, and no source will ever send them again."""


DEFAULT_TIMEOUT_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class AckingSettings:
    """How records are tracked in mode ``acking``. Times are virtual ns.

    ``ackers``       their number, ``None`` = one per worker, that is as many as the widest vertex has subtasks; 0 = no
                     record is tracked, and each counts as acknowledged when it is emitted: at most once;
    ``timeout_ns``   T: a record without news for T to 2T is sent again (Storm: 30 s). ``None`` = never: the records of
                     a dead task are lost, and the job waits for them for ever, which is an error in the end;
    ``max_pending``  records of one source subtask that may be unacknowledged, ``None`` = any number. It bounds what the
                     source keeps in memory, and holds it back (Storm: ``topology.max.spout.pending``);
    ``max_replays``  a record that was sent again so often, and is still not acknowledged, fails the job: a timeout
                     shorter than the way of a record would go on for ever. (Storm has no such limit.)
    ``recovery_ns``  between the death of an acker and its successor, whose memory is empty.
    """

    ackers: int | None = None
    timeout_ns: int | None = DEFAULT_TIMEOUT_NS
    max_pending: int | None = None
    max_replays: int = 100
    recovery_ns: int = 10_000_000

    def __post_init__(self) -> None:
        for name, least, optional in (
            ("ackers", 0, True),
            ("timeout_ns", 1, True),
            ("max_pending", 1, True),
            ("max_replays", 1, False),
            ("recovery_ns", 0, False),
        ):
            value: object = getattr(self, name)
            if value is None and optional:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigurationError(f"acking: {name} is {value!r}; it must be a whole number")
            if value < least:
                raise ConfigurationError(f"acking: {name} is {value}; it must be at least {least}")
