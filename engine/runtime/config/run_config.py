"""How a job is run, apart from its logic: mode, intervals, batch size, costs, restarts, seed.

A setting that makes no sense, alone or beside another, is refused when the configuration is made. The error names the
setting, gives its value and the value to set instead. Nothing has been touched by then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

from engine.checkpoint.restore import FixedDelayRestart, NoRestart, RestartStrategy
from engine.elements.errors import ConfigurationError
from engine.protocols.acking.settings import AckingSettings
from engine.protocols.barriers import CheckpointProtocol
from engine.protocols.protocol_names import protocol_named
from engine.runtime.config.cost import CostModel
from state_backends.api import StateBackend
from state_backends.base import StateArgumentError
from state_backends.named import state_backend_named
from state_backends.snapshots import COMPRESSIONS, MAX_INLINE_THRESHOLD_BYTES

DEFAULT_SAMPLES = 20
"""Flink: ``taskmanager.network.memory.buffer-debloat.samples``."""

DEFAULT_THRESHOLD_PERCENT = 25
"""Flink: ``taskmanager.network.memory.buffer-debloat.threshold-percentages``."""

PERIODS_PER_TARGET = 5
"""Flink: a period of 200 ms at a target of 1 s."""


@dataclass(frozen=True, slots=True)
class DebloatSettings:
    """Keeps the inputs of all tasks of a run short.

    ``target_ns``          virtual time in which a task should be able to take everything that is in flight to it;
    ``period_ns``          how often the credit is computed anew;
    ``min_records``        the least credit of a channel, at least 1;
    ``threshold_percent``  changes below this part of the present credit are not applied;
    ``samples``            periods over which the credit is smoothed: one counts ``2 / (samples + 1)``.
    """

    target_ns: int
    period_ns: int
    min_records: int = 1
    threshold_percent: int = DEFAULT_THRESHOLD_PERCENT
    samples: int = DEFAULT_SAMPLES

    def __post_init__(self) -> None:
        assert self.target_ns >= 1, self
        assert self.period_ns >= 1, self
        assert self.min_records >= 1, self
        assert self.threshold_percent >= 0, self
        assert self.samples >= 1, self


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
DEFAULT_ALIGNED_TIMEOUT_NS = 10_000_000
DEFAULT_RESTARTS = 3
DEFAULT_RESTART_DELAY_NS = 10_000_000
DEFAULT_MASTER_RECOVERY_NS = 10_000_000
DEFAULT_HEARTBEAT_TIMEOUT_NS = 50_000_000_000
DEFAULT_FINAL_CHECKPOINT_ATTEMPTS = 10
DEFAULT_MATERIALIZATION_NS = 600_000_000_000

ALIGNED_TIMEOUT, UNALIGNED = "aligned-timeout", "unaligned"
"""The modes that may store records in flight."""

SNAPSHOTS = ("full", "incremental")
"""Whether a checkpoint holds all of its keyed state, or refers to what earlier ones have written."""

FAILOVERS = ("full", "region")
"""The tasks that die with a failed task: the whole job, or the tasks it exchanges records with."""


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
        for name in ("time_ns", "records"):
            value: object = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigurationError(
                    f"{name} of a checkpoint interval is {value!r}; it must be a whole number, or write"
                    " CheckpointInterval.parse('100ms')"
                )
        if (self.time_ns or self.records or 0) <= 0:
            raise ConfigurationError("a checkpoint interval must be above 0")

    @classmethod
    def parse(cls, text: str) -> CheckpointInterval:
        """``'100ms'`` or ``'10000rec'``."""
        match = re.fullmatch(r"\s*(\d+)\s*rec\s*", text)
        if match is not None:
            return cls(records=int(match[1]))
        try:
            return cls(time_ns=parse_duration_ns(text, "checkpoint interval"))
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; or a number of source records, e.g. 10000rec") from None


_LEAST = (
    ("batch_size", 1),
    ("checkpoint_timeout_ns", 1),
    ("min_pause_ns", 0),
    ("max_concurrent", 1),
    ("retained", 1),
    ("tolerable_failures", 0),
    ("channel_capacity", 1),
    ("output_capacity", 0),
    ("inline_state_bytes", 0),
    ("aligned_timeout_ns", 1),
    ("interval_during_backlog_ns", 0),
    ("master_recovery_ns", 0),
    ("heartbeat_timeout_ns", 1),
    ("final_checkpoint_attempts", 1),
    ("debloat_target_ns", 1),
    ("debloat_period_ns", 1),
    ("debloat_min_records", 1),
    ("debloat_threshold_percent", 0),
    ("materialization_interval_ns", 1_000_000),
    ("debloat_samples", 1),
)

_SWITCHES = (
    "seeded_schedule",
    "allow_non_restored_state",
    "checkpoints_after_tasks_finish",
    "random_first_delay",
    "local_recovery",
)

_OPTIONAL = (
    "channel_capacity",
    "aligned_timeout_ns",
    "interval_during_backlog_ns",
    "debloat_target_ns",
    "debloat_period_ns",
    "materialization_interval_ns",
)


def _check_whole(name: str, value: object, least: int) -> None:
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        hint = "; times are whole virtual nanoseconds, see parse_duration_ns" if name.endswith("_ns") else ""
        raise ConfigurationError(f"{name} is {value!r}; it must be a whole number{hint}")
    if value < least:
        raise ConfigurationError(f"{name} is {value}; it must be at least {least}")


def _check_type(config: RunConfig, name: str, allowed: tuple[type, ...], example: str) -> None:
    value = getattr(config, name)
    # A class passes for its protocol's type, too: NoRestart for NoRestart().
    if not isinstance(value, allowed) or isinstance(value, type):
        raise ConfigurationError(f"{name} is {value!r} of type {type(value).__name__}; write {example}")


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
    ``output_capacity``          records that a channel holds on the sender's side beyond that credit;
    ``seeded_schedule``          whether the order of tasks within an instant is drawn from the seed, or is the
                                 order in which they were woken;
    ``restart``                  restart strategy, ``None`` = three attempts 10 ms apart when the mode takes
                                 checkpoints or tracks records, else none;
    ``inline_state_bytes``       state up to this size is stored inside the checkpoint's metadata;
    ``aligned_timeout_ns``       in mode ``aligned-timeout``: an older barrier turns unaligned, ``None`` = 10 ms;
    ``checkpoints_after_tasks_finish``  whether tasks may finish before the job does; if not, a task that has reached
                                 its end stays until the last checkpoint of the job;
    ``interval_during_backlog_ns``  takes the place of the checkpoint interval while a source works off a backlog;
                                 0 = no periodic checkpoints meanwhile, ``None`` = the interval as always;
    ``random_first_delay``       whether the first periodic checkpoint comes after a delay drawn from the seed, between
                                 the pause and the interval (as in Flink), or after one interval;
    ``failover``                 ``full``: a failed task takes all others with it; ``region``: only those that it is
                                 connected with by channels, however many tasks away;
    ``master_recovery_ns``       time between the death of the job manager and its successor;
    ``heartbeat_timeout_ns``     a task of which nothing is heard for longer counts as dead (Flink: 50 s);
    ``final_checkpoint_attempts``  failures in a row of the last checkpoint of a job that fail the job;
    ``debloat_target_ns``        buffer debloating: cut the credit of channels to the records that their task takes in
                                 this time; ``None`` = it is always ``channel_capacity``;
    ``debloat_period_ns``        how often it is computed, ``None`` = a fifth of the target;
    ``debloat_min_records``      the least credit of a channel;
    ``debloat_threshold_percent``  changes of the credit below this are not applied;
    ``debloat_samples``          periods over which it is smoothed;
    ``state_backend``            where keyed state is kept: ``heap``, ``lsm``, ``rocksdb``, ``changelog`` or
                                 ``changelog:`` and one of the others; or a state backend with settings of its own;
    ``snapshot``                 ``full``: a checkpoint holds all of its keyed state; ``incremental``: it refers to
                                 files of earlier ones. (A state backend that is given says so itself.)
    ``snapshot_compression``     of full snapshots: ``none``, or ``zlib``, whose bytes differ between its versions;
    ``local_recovery``           tasks keep a local copy of their state, to restore from after a failure;
    ``materialization_interval_ns``  between two snapshots of the state under a changelog, ``None`` = never;
    ``acking``                   how mode ``acking`` tracks records; ``checkpoint_interval`` is how often sources commit
                                 their offsets there.
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
    output_capacity: int = 0
    seeded_schedule: bool = True
    restart: RestartStrategy | None = None
    cost: CostModel = field(default_factory=CostModel)
    inline_state_bytes: int = 20 * 1024
    allow_non_restored_state: bool = False
    aligned_timeout_ns: int | None = None
    checkpoints_after_tasks_finish: bool = True
    interval_during_backlog_ns: int | None = None
    random_first_delay: bool = False
    failover: str = "full"
    master_recovery_ns: int = DEFAULT_MASTER_RECOVERY_NS
    heartbeat_timeout_ns: int = DEFAULT_HEARTBEAT_TIMEOUT_NS
    final_checkpoint_attempts: int = DEFAULT_FINAL_CHECKPOINT_ATTEMPTS
    debloat_target_ns: int | None = None
    debloat_period_ns: int | None = None
    debloat_min_records: int = 1
    debloat_threshold_percent: int = DEFAULT_THRESHOLD_PERCENT
    debloat_samples: int = DEFAULT_SAMPLES
    state_backend: str | StateBackend = "heap"
    snapshot: str = "full"
    snapshot_compression: str = "none"
    local_recovery: bool = False
    materialization_interval_ns: int | None = DEFAULT_MATERIALIZATION_NS
    acking: AckingSettings = field(default_factory=AckingSettings)

    def __post_init__(self) -> None:
        self._check_types()
        mode = protocol_named(self.mode).name
        for name, least in _LEAST:
            _check_whole(name, getattr(self, name), least)
        if not 0 <= self.inline_state_bytes <= MAX_INLINE_THRESHOLD_BYTES:
            raise ConfigurationError(
                f"inline_state_bytes is {self.inline_state_bytes}; it must be from 0 to {MAX_INLINE_THRESHOLD_BYTES}"
            )
        if self.failover not in FAILOVERS:
            raise ConfigurationError(f"failover is {self.failover!r}; it must be one of {', '.join(FAILOVERS)}")
        if mode in (UNALIGNED, ALIGNED_TIMEOUT) and self.max_concurrent > 1:
            raise ConfigurationError(
                f"max_concurrent is {self.max_concurrent}, but in mode {mode} checkpoints store records in flight and"
                " cannot overlap; set max_concurrent to 1, or use mode aligned"
            )
        self._check_aligned_timeout(mode)
        self._check_backlog_interval()
        self._check_debloating()
        self._check_state()

    def _check_types(self) -> None:
        """Refuse values of a wrong type: they would end in a traceback, or pass for something else ('no' for true)."""
        _check_type(self, "mode", (str,), "mode='aligned'")
        _check_type(self, "seed", (str, int), "seed='0'")
        for name in _SWITCHES:
            _check_type(self, name, (bool,), f"{name}=True or {name}=False")
        _check_type(self, "cost", (CostModel,), "cost=CostModel(...)")
        _check_type(self, "acking", (AckingSettings,), "acking=AckingSettings(...)")
        interval = (CheckpointInterval, type(None))
        _check_type(self, "checkpoint_interval", interval, "checkpoint_interval=CheckpointInterval.parse('100ms')")
        if self.restart is not None:
            example = "restart=NoRestart(), or another strategy of engine.checkpoint.restore.restart"
            _check_type(self, "restart", (RestartStrategy,), example)

    def _check_aligned_timeout(self, mode: str) -> None:
        timeout_ns = self.aligned_timeout_ns
        if mode != ALIGNED_TIMEOUT:
            if timeout_ns is not None:
                raise ConfigurationError(
                    f"aligned_timeout_ns is {timeout_ns}, but in mode {mode} no barrier turns unaligned; leave it out,"
                    f" or use mode {ALIGNED_TIMEOUT}"
                )
        elif timeout_ns is not None and timeout_ns > self.checkpoint_timeout_ns:
            raise ConfigurationError(
                f"aligned_timeout_ns is {timeout_ns}, which is longer than checkpoint_timeout_ns"
                f" ({self.checkpoint_timeout_ns}): a checkpoint would be given up before its barriers may overtake"
                " records; set a shorter aligned_timeout_ns, or a longer checkpoint_timeout_ns"
            )

    def _check_backlog_interval(self) -> None:
        slow_ns, interval = self.interval_during_backlog_ns, self.checkpoint_interval
        if slow_ns is None:
            return
        if interval is None or interval.time_ns is None:
            raise ConfigurationError(
                f"interval_during_backlog_ns is {slow_ns}, but checkpoint_interval is no time that it could replace;"
                " set a checkpoint_interval in time, or leave interval_during_backlog_ns out"
            )
        if 0 < slow_ns < interval.time_ns:
            raise ConfigurationError(
                f"interval_during_backlog_ns is {slow_ns}, which is shorter than checkpoint_interval"
                f" ({interval.time_ns}); set it to at least that, or to 0 for no periodic checkpoints during a backlog"
            )

    def _check_debloating(self) -> None:
        if self.debloat_target_ns is None and self.debloat_period_ns is not None:
            raise ConfigurationError(
                f"debloat_period_ns is {self.debloat_period_ns}, but nothing is debloated without a debloat_target_ns:"
                " set it to the time in which a task should be able to take what is in flight to it, or leave"
                " debloat_period_ns out"
            )
        if self.debloat_min_records > self.capacity:
            raise ConfigurationError(
                f"debloat_min_records is {self.debloat_min_records}, which is more than channel_capacity"
                f" ({self.capacity}) ever grants; set it to at most that, or a larger channel_capacity"
            )

    def _check_state(self) -> None:
        for name, allowed in (("snapshot", SNAPSHOTS), ("snapshot_compression", COMPRESSIONS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigurationError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
        backend = self.backend()
        if self.snapshot == "incremental" and not backend.incremental:
            raise ConfigurationError(
                f"snapshot is 'incremental', but the state backend that is given ({backend.name}) writes full"
                " snapshots; make it with incremental=True, and leave snapshot out"
            )

    def backend(self) -> StateBackend:
        """The state backend that ``state_backend`` and ``snapshot`` mean.

        Raises :class:`ConfigurationError` when there is none of that name, or it needs a package that is missing.
        """
        chosen = self.state_backend
        if not isinstance(chosen, str):
            if not callable(getattr(chosen, "create_keyed_backend", None)) or isinstance(chosen, type):
                raise ConfigurationError(
                    f"state_backend is {chosen!r} of type {type(chosen).__name__}; write state_backend='heap', or give"
                    " a state backend"
                )
            return chosen
        try:
            backend = state_backend_named(chosen, incremental=self.snapshot == "incremental")
        except StateArgumentError as error:
            raise ConfigurationError(f"state_backend: {error}") from error
        if not chosen.startswith("changelog"):
            return backend
        from state_backends.changelog import ChangelogStateBackend

        assert isinstance(backend, ChangelogStateBackend), chosen
        interval_ns = self.materialization_interval_ns
        interval_ms = None if interval_ns is None else interval_ns // 1_000_000
        return ChangelogStateBackend(backend.inner, materialization_interval_ms=interval_ms)

    @property
    def debloating(self) -> DebloatSettings | None:
        """How channels are kept short, ``None`` when they are not."""
        if self.debloat_target_ns is None:
            return None
        period_ns = self.debloat_period_ns
        return DebloatSettings(
            self.debloat_target_ns,
            max(1, self.debloat_target_ns // PERIODS_PER_TARGET) if period_ns is None else period_ns,
            self.debloat_min_records,
            self.debloat_threshold_percent,
            self.debloat_samples,
        )

    @property
    def protocol(self) -> CheckpointProtocol:
        """The protocol that ``mode`` names."""
        return protocol_named(
            self.mode,
            checkpoints_after_tasks_finish=self.checkpoints_after_tasks_finish,
            aligned_timeout_ns=self.effective_aligned_timeout_ns,
        )

    @property
    def effective_aligned_timeout_ns(self) -> int:
        """``aligned_timeout_ns``, or its default, which is cut to the timeout of the whole checkpoint."""
        if self.aligned_timeout_ns is None:
            return min(DEFAULT_ALIGNED_TIMEOUT_NS, self.checkpoint_timeout_ns)
        return self.aligned_timeout_ns

    @property
    def capacity(self) -> int:
        """Credit of a channel in records."""
        return self.channel_capacity if self.channel_capacity is not None else 2 * self.batch_size

    def restart_strategy(self) -> RestartStrategy:
        """A fresh restart strategy for one run."""
        if self.restart is not None:
            return self.restart
        if self.protocol.takes_checkpoints or self.protocol.tracks_records:
            return FixedDelayRestart(DEFAULT_RESTARTS, DEFAULT_RESTART_DELAY_NS)
        return NoRestart()
