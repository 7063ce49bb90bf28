"""How a job is run, apart from what it computes: mode, intervals, batch size, costs, restarts, seed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

from engine.checkpoint.restart import FixedDelayRestart, NoRestart, RestartStrategy
from engine.elements.errors import ConfigurationError
from engine.protocols.interface import CheckpointProtocol
from engine.protocols.registry import protocol_named
from engine.runtime.cost import CostModel

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*$")

DEFAULT_INTERVAL_NS = 100_000_000
DEFAULT_TIMEOUT_NS = 600_000_000_000
DEFAULT_RESTARTS = 3
DEFAULT_RESTART_DELAY_NS = 10_000_000


def parse_duration_ns(text: str, what: str = "duration") -> int:
    """Virtual ns of ``'250ms'``, ``'1.5s'``, ``'20us'``; raises :class:`ConfigurationError` on anything else."""
    match = _DURATION.match(text)
    if match is None or match[2] not in _UNITS_NS:
        raise ConfigurationError(
            f"{what} {text!r} is not a time: write a number and a unit, one of {', '.join(_UNITS_NS)}; e.g. 250ms"
        )
    # Decimal: a float would lose nanoseconds above 104 days.
    return round(Decimal(match[1]) * _UNITS_NS[match[2]])


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """When periodic checkpoints are triggered: every ``time_ns`` of virtual time, or every ``records`` records that
    the sources of the job have emitted together. Exactly one of the two is set."""

    time_ns: int | None = None
    records: int | None = None

    def __post_init__(self) -> None:
        if (self.time_ns is None) == (self.records is None):
            raise ConfigurationError("a checkpoint interval is either a time or a number of records")
        if (self.time_ns or self.records or 0) <= 0:
            raise ConfigurationError("a checkpoint interval must be above 0")

    @classmethod
    def parse(cls, text: str) -> CheckpointInterval:
        """``'100ms'`` or ``'10000rec'``."""
        match = re.fullmatch(r"\s*(\d+)\s*rec\s*", text)
        if match is not None:
            return cls(records=int(match[1]))
        return cls(time_ns=parse_duration_ns(text, "checkpoint interval"))


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of one run.

    ``mode``                     name of the checkpoint protocol, see :mod:`engine.protocols`;
    ``seed``                     seeds every choice of the run;
    ``batch_size``               records a source emits at a time (1 for lessons, thousands for throughput);
    ``checkpoint_interval``      ``None`` = no periodic checkpoints (the final one is still taken);
    ``checkpoint_timeout_ns``    a checkpoint that takes longer is aborted;
    ``min_pause_ns``             least time between the end of one checkpoint and the next periodic one;
    ``max_concurrent``           checkpoints that may be pending together;
    ``retained``                 completed checkpoints kept in storage (Flink: 1; with 2, one may be damaged);
    ``tolerable_failures``       failed checkpoints in a row that do not fail the job;
    ``channel_capacity``         credit of a channel in records, ``None`` = two batches;
    ``seeded_schedule``          whether the order of tasks within an instant is drawn from the seed, or is the
                                 order in which they were woken;
    ``restart``                  restart strategy, ``None`` = three attempts 10 ms apart when the mode takes
                                 checkpoints, else none;
    ``inline_state_bytes``       state up to this size is stored inside the checkpoint's metadata.
    """

    mode: str = "aligned"
    seed: str = "0"
    batch_size: int = 1_024
    checkpoint_interval: CheckpointInterval | None = field(
        default_factory=lambda: CheckpointInterval(time_ns=DEFAULT_INTERVAL_NS)
    )
    checkpoint_timeout_ns: int = DEFAULT_TIMEOUT_NS
    min_pause_ns: int = 0
    max_concurrent: int = 1
    retained: int = 2
    tolerable_failures: int = 0
    channel_capacity: int | None = None
    seeded_schedule: bool = True
    restart: RestartStrategy | None = None
    cost: CostModel = field(default_factory=CostModel)
    inline_state_bytes: int = 20 * 1024
    allow_non_restored_state: bool = False

    def __post_init__(self) -> None:
        protocol_named(self.mode)
        for name in ("batch_size", "max_concurrent", "retained"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.channel_capacity is not None and self.channel_capacity < 1:
            raise ConfigurationError(f"channel_capacity is {self.channel_capacity}; it must be at least 1")

    @property
    def protocol(self) -> CheckpointProtocol:
        """The protocol that ``mode`` names."""
        return protocol_named(self.mode)

    @property
    def capacity(self) -> int:
        """Credit of a channel in records."""
        return self.channel_capacity if self.channel_capacity is not None else 2 * self.batch_size

    def restart_strategy(self) -> RestartStrategy:
        """A fresh restart strategy for one run."""
        if self.restart is not None:
            return self.restart
        if self.protocol.takes_checkpoints:
            return FixedDelayRestart(DEFAULT_RESTARTS, DEFAULT_RESTART_DELAY_NS)
        return NoRestart()
