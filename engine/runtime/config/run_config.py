"""How a job is run, apart from its logic: mode, intervals, batch size, costs, restarts, seed.

A setting that makes no sense, alone or beside another, is refused when the configuration is made. The error names the
setting, gives its value and the value to set instead. Nothing has been touched by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.checkpoint.restore import FixedDelayRestart, NoRestart, RestartStrategy
from engine.elements.errors import ConfigurationError
from engine.elements.failure_laws import Failures
from engine.elements.laws import Law
from engine.elements.setting_fields import by_name, setting, settle
from engine.protocols.acking.settings import AckingSettings
from engine.protocols.barriers import CheckpointProtocol
from engine.protocols.protocol_names import protocol_named
from engine.runtime.config.cost import CostModel
from engine.runtime.config.kinds import (
    FAILURES,
    INTERVAL,
    RESTART,
    SEED,
    SERVICE,
    STATE_BACKEND,
    CheckpointInterval,
    ServiceOfRecord,
    as_service,
    several_failures,
)
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


@dataclass(frozen=True, slots=True)
class ChannelCredit:
    """Credit of the channels of a run: in records, or in bytes when ``segment_bytes`` is the size of a buffer.

    ``capacity``         of a channel on the receiver's side; ``output_capacity``: beyond that on the sender's;
    ``floating``         what each task lends to its full inputs.
    """

    capacity: int
    output_capacity: int = 0
    floating: int = 0
    segment_bytes: int | None = None


DEFAULT_ALIGNED_TIMEOUT_NS = 10_000_000
DEFAULT_RESTARTS = 3
RESTARTS_WITH_FAILURES = 10_000
"""A job that fails at random times fails often; but one that never gets on must end."""
DEFAULT_RESTART_DELAY_NS = 10_000_000

ALIGNED_TIMEOUT, UNALIGNED = "aligned-timeout", "unaligned"
"""The modes that may store records in flight."""

SNAPSHOTS = ("full", "incremental")
"""Whether a checkpoint holds all of its keyed state, or refers to what earlier ones have written."""

FAILOVERS = ("full", "region")
"""The tasks that die with a failed task: the whole job, or the tasks it exchanges records with."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of one run, each with its meaning. A time is a whole number of virtual ns, or its text: ``"250ms"``."""

    mode: str = setting(
        "aligned",
        "How checkpoints are taken: aligned (or exactly-once), unaligned, aligned-timeout, at-least-once or none;"
        " acking takes none and tracks records.",
        option="mode",
        flink=(
            "execution.checkpointing.mode", "execution.checkpointing.unaligned.enabled",
            "execution.checkpointing.unaligned",
        ),
        flink_default="EXACTLY_ONCE, not unaligned",
    )
    seed: str = setting("0", "Seed of every choice: a number or any text.", kind=SEED, option="seed")
    batch_size: int = setting(
        1_024, "Records a source emits at a time: 1 for lessons, thousands for throughput.", least=1,
        option="batch_size", flink=("execution.buffer-timeout.interval", "execution.buffer-timeout"),
        flink_default="100 ms",
        why="a batch is sent when it is complete; only Flink's 0, each record at once, has an equal: 1",
    )
    checkpoint_interval: CheckpointInterval | None = setting(
        CheckpointInterval(time_ns=100_000_000),
        "Virtual time, or source records, between checkpoints. In mode acking: between two commits of offsets.",
        kind=INTERVAL, none="no periodic checkpoints; the final one is still taken", option="checkpoint_interval",
        flink=("execution.checkpointing.interval",), flink_default="none",
        why="a run without checkpoints could not recover",
    )
    checkpoint_timeout_ns: int = setting(
        600_000_000_000, "A slower checkpoint is aborted.", least=1, option="checkpoint_timeout",
        flink=("execution.checkpointing.timeout",), flink_default="10 min",
    )
    min_pause_ns: int = setting(
        0, "Least time between the end of one checkpoint and the next periodic one.", least=0, option="min_pause",
        flink=("execution.checkpointing.min-pause",), flink_default="0 ms",
    )
    max_concurrent: int = setting(
        1, "Checkpoints that may be pending together.", least=1, option="max_concurrent",
        flink=("execution.checkpointing.max-concurrent-checkpoints",), flink_default="1",
        beside="1 in the modes unaligned and aligned-timeout",
    )
    retained: int = setting(
        2, "Completed checkpoints kept in storage.", least=1, option="retain",
        flink=("execution.checkpointing.num-retained", "state.checkpoints.num-retained"), flink_default="1",
        why="with 2, one may be damaged",
    )
    tolerable_failures: int = setting(
        0, "Consecutive failed checkpoints that do not fail the job.", least=0, option="tolerable_failures",
        flink=("execution.checkpointing.tolerable-failed-checkpoints",), flink_default="0",
    )
    channel_capacity: int | None = setting(
        None, "Credit of a channel in records.", least=1, none="two batches"
    )
    floating_credit: int = setting(
        0, "Credit in records that each task lends to those of its input channels that are full.", least=0
    )
    output_capacity: int = setting(0, "Records that a channel holds on the sender's side beyond that credit.", least=0)
    segment_bytes: int | None = setting(
        None, "Size of a buffer. Then channels hold buffers, in bytes by cost.record_bytes, and not records.", least=1,
        none="channels are bounded in records", flink=("taskmanager.memory.segment-size",), flink_default="32 kb",
        beside="instead of channel_capacity, floating_credit, output_capacity and debloat_target",
    )
    exclusive_buffers: int = setting(
        2, "With segment_bytes: buffers of each channel.", least=1,
        flink=("taskmanager.network.memory.buffers-per-channel",), flink_default="2",
    )
    floating_buffers: int = setting(
        8, "With segment_bytes: buffers that each task lends to those of its input channels that are full.", least=0,
        flink=("taskmanager.network.memory.floating-buffers-per-gate",), flink_default="8",
    )
    seeded_schedule: bool = setting(
        True, "Whether the seed decides the order of tasks within an instant, or the order in which they were woken."
    )
    restart: RestartStrategy | None = setting(
        None, "After a failure: none, fixed:3:10ms, exponential:10ms:1s:2 or rate:2:1m:10ms.", kind=RESTART,
        none="fixed:3:10ms, with failures fixed:10000:10ms; none in mode none", none_text="default", option="restart",
        flink=("restart-strategy.type", "restart-strategy"),
        flink_default="exponential-delay with checkpoints, else none",
        why="three attempts are enough for a simulated failure, and a job that cannot run ends soon",
    )
    cost: CostModel = field(default_factory=CostModel)
    service: Mapping[str, Law | ServiceOfRecord] = setting(
        factory=dict,
        text="Time that an operator takes for a record, beyond cost.record, by the name of a subtask, vertex or"
        " operator: a law such as exponential:100ms; in Python also a function of the record that gives one.",
        kind=by_name(SERVICE),
    )
    failures: Failures | tuple[Failures, ...] = setting(
        (),
        "Failures at random times: laws of the time between two, each with a target: task, host, job manager or"
        " storage.",
        kind=FAILURES,
    )
    inline_state_bytes: int = setting(
        20 * 1024, "State up to this size is stored inside the checkpoint's metadata.", least=0,
        most=MAX_INLINE_THRESHOLD_BYTES,
        flink=(
            "execution.checkpointing.data-inline-threshold", "state.storage.fs.memory-threshold",
            "state.backend.fs.memory-threshold",
        ),
        flink_default="20 kb",
    )
    allow_non_restored_state: bool = setting(
        False, "Whether to drop state that no operator of the job claims, instead of refusing to start from it.",
        flink=("execution.state-recovery.ignore-unclaimed-state", "execution.savepoint.ignore-unclaimed-state"),
        flink_default="false",
    )
    aligned_timeout_ns: int | None = setting(
        None, "An older barrier overtakes records.", least=1,
        none="10ms, or the checkpoint timeout if that is shorter", option="aligned_timeout",
        flink=("execution.checkpointing.aligned-checkpoint-timeout", "execution.checkpointing.alignment-timeout"),
        flink_default="0 ms", why="0 is mode unaligned",
        beside="only in mode aligned-timeout, and at most checkpoint_timeout",
    )
    checkpoints_after_tasks_finish: bool = setting(
        True,
        "Whether tasks may finish before the job does; if not, a task stays until the last checkpoint of the job.",
        option="checkpoints_after_tasks_finish",
        flink=(
            "execution.checkpointing.checkpoints-after-tasks-finish",
            "execution.checkpointing.checkpoints-after-tasks-finish.enabled",
        ),
        flink_default="true",
    )
    interval_during_backlog_ns: int | None = setting(
        None, "Checkpoint interval while a source works off a backlog; 0s = no periodic checkpoints meanwhile.",
        least=0, none="the checkpoint interval", option="interval_during_backlog",
        flink=("execution.checkpointing.interval-during-backlog",), flink_default="none",
        beside="at least checkpoint_interval, which must be a time",
    )
    random_first_delay: bool = setting(
        False,
        "Whether the seed draws the delay of the first periodic checkpoint, between the pause and the interval as in"
        " Flink; if not, it is the interval.",
    )
    failover: str = setting(
        "full", "What a failed task takes with it: all tasks, or those it exchanges records with.", choices=FAILOVERS,
        option="failover", flink=("jobmanager.execution.failover-strategy",), flink_default="region",
        why="the whole job is easier to follow",
    )
    master_recovery_ns: int = setting(
        10_000_000, "Time between the death of the job manager and its successor.", least=0
    )
    heartbeat_timeout_ns: int = setting(
        50_000_000_000, "A task without a sign of life for longer counts as dead.", least=1,
        flink=("heartbeat.timeout",), flink_default="50 s",
    )
    final_checkpoint_attempts: int = setting(
        10, "Consecutive failures of the last checkpoint of a job that fail the job.", least=1
    )
    debloat_target_ns: int | None = setting(
        None, "Buffer debloating: keep no more records in flight to a task than it takes in this time.", least=1,
        none="off", option="debloat",
        flink=(
            "taskmanager.network.memory.buffer-debloat.target", "taskmanager.network.memory.buffer-debloat.enabled",
        ),
        flink_default="off",
    )
    debloat_period_ns: int | None = setting(
        None, "How often debloating computes the credit of channels.", least=1, none="a fifth of the target",
        flink=("taskmanager.network.memory.buffer-debloat.period",), flink_default="200 ms",
        beside="only with debloat_target",
    )
    debloat_min_records: int = setting(
        1, "The least credit of a channel that debloating sets.", least=1, beside="at most channel_capacity"
    )
    debloat_threshold_percent: int = setting(
        25, "Debloating does not apply a change of the credit that is smaller than this part of it.", least=0,
        flink=("taskmanager.network.memory.buffer-debloat.threshold-percentages",), flink_default="25",
    )
    debloat_samples: int = setting(
        20, "Periods over which debloating smooths the credit.", least=1,
        flink=("taskmanager.network.memory.buffer-debloat.samples",), flink_default="20",
    )
    state_backend: str | StateBackend = setting(
        "heap",
        "What keyed state is kept in: heap, lsm, rocksdb, changelog, or a changelog over another one: changelog:lsm.",
        kind=STATE_BACKEND, option="state_backend",
        flink=("state.backend.type", "state.backend", "state.changelog.enabled", "state.backend.changelog.enabled"),
        flink_default="hashmap",
    )
    snapshot: str = setting(
        "full", "Whether a checkpoint holds all keyed state, or refers to what earlier ones wrote.",
        choices=SNAPSHOTS, option="snapshot",
        flink=("execution.checkpointing.incremental", "state.backend.incremental"), flink_default="false",
        beside="a state backend that is given as an object says so itself",
    )
    snapshot_compression: str = setting(
        "none", "Compression of full snapshots; zlib writes other bytes in its other versions.", choices=COMPRESSIONS,
        option="compression", flink=("execution.checkpointing.snapshot-compression",), flink_default="false",
    )
    local_recovery: bool = setting(
        False, "Keep a copy of each subtask's state beside it, to restore from after a failure.",
        option="local_recovery",
        flink=(
            "execution.checkpointing.local-backup.enabled", "execution.state-recovery.from-local",
            "state.backend.local-recovery",
        ),
        flink_default="false",
    )
    materialization_interval_ns: int | None = setting(
        600_000_000_000, "Of the changelog: virtual time between two snapshots of the state under it.",
        least=1_000_000, none="never", option="materialization_interval",
        flink=(
            "state.changelog.periodic-materialize.interval", "state.backend.changelog.periodic-materialize.interval",
        ),
        flink_default="10 min",
    )
    acking: AckingSettings = field(default_factory=AckingSettings)
    protocol: CheckpointProtocol = field(init=False, repr=False, compare=False)
    """The protocol that ``mode`` names."""

    def __post_init__(self) -> None:
        settle(self)
        for name, kind in (("cost", CostModel), ("acking", AckingSettings)):
            if not isinstance(getattr(self, name), kind):
                value = getattr(self, name)
                raise ConfigurationError(
                    f"{name} is {value!r} of type {type(value).__name__}; write {name}={kind.__name__}(...)"
                )
        object.__setattr__(self, "service", {name: as_service(one) for name, one in self.service.items()})
        several = several_failures(self.failures)
        for one in several:
            if not isinstance(one, Failures):
                raise ConfigurationError(f"failures has {one!r}; each must be like Failures(Exponential('6h'))")
        object.__setattr__(self, "failures", several)
        protocol = protocol_named(
            self.mode,
            checkpoints_after_tasks_finish=self.checkpoints_after_tasks_finish,
            aligned_timeout_ns=self.effective_aligned_timeout_ns,
        )
        object.__setattr__(self, "protocol", protocol)
        mode = protocol.name
        if mode in (UNALIGNED, ALIGNED_TIMEOUT) and self.max_concurrent > 1:
            raise ConfigurationError(
                f"max_concurrent is {self.max_concurrent}, but in mode {mode} checkpoints store records in flight and"
                " cannot overlap; set max_concurrent to 1, or use mode aligned"
            )
        self._check_aligned_timeout(mode)
        self._check_backlog_interval()
        self._check_buffers()
        self._check_debloating()
        self._check_backend()

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

    def _check_buffers(self) -> None:
        if self.segment_bytes is None:
            for name, default in (("exclusive_buffers", 2), ("floating_buffers", 8)):
                if getattr(self, name) != default:
                    raise ConfigurationError(
                        f"{name} is {getattr(self, name)}, but channels are bounded in records without segment_bytes;"
                        f" set segment_bytes to the size of a buffer, such as '32kb', or leave {name} out"
                    )
            return
        for name, unset in (
            ("channel_capacity", None), ("floating_credit", 0), ("output_capacity", 0), ("debloat_target_ns", None),
        ):  # fmt: skip
            value = getattr(self, name)
            if value != unset:
                raise ConfigurationError(
                    f"{name} is {value}, which bounds channels in records, and segment_bytes ({self.segment_bytes})"
                    f" bounds them in bytes; leave {name} or segment_bytes out"
                )
        if self.cost.record_bytes == 0:
            raise ConfigurationError(
                f"segment_bytes is {self.segment_bytes}, but records of 0 bytes (cost.record_bytes) fill no buffer; set"
                " cost.record_bytes to at least 1"
            )

    def _check_debloating(self) -> None:
        if self.debloat_target_ns is None and self.debloat_period_ns is not None:
            raise ConfigurationError(
                f"debloat_period_ns is {self.debloat_period_ns}, but nothing is debloated without a debloat_target_ns:"
                " set it to the time in which a task should be able to take what is in flight to it, or leave"
                " debloat_period_ns out"
            )
        if self.debloat_target_ns is not None and self.floating_credit:
            raise ConfigurationError(
                f"floating_credit is {self.floating_credit}, but debloating sets the credit of every channel; leave"
                " floating_credit or debloat_target_ns out"
            )
        if self.debloat_min_records > self.capacity:
            raise ConfigurationError(
                f"debloat_min_records is {self.debloat_min_records}, which is more than channel_capacity"
                f" ({self.capacity}) ever grants; set it to at most that, or a larger channel_capacity"
            )

    def _check_backend(self) -> None:
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
    def failure_laws(self) -> tuple[Failures, ...]:
        """The failures at random times."""
        return several_failures(self.failures)

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
    def effective_aligned_timeout_ns(self) -> int:
        """``aligned_timeout_ns``, or its default, which is cut to the timeout of the whole checkpoint."""
        if self.aligned_timeout_ns is None:
            return min(DEFAULT_ALIGNED_TIMEOUT_NS, self.checkpoint_timeout_ns)
        return self.aligned_timeout_ns

    @property
    def capacity(self) -> int:
        """Credit of a channel in records."""
        return self.channel_capacity if self.channel_capacity is not None else 2 * self.batch_size

    @property
    def credit(self) -> ChannelCredit:
        """Credit of the channels."""
        size = self.segment_bytes
        if size is None:
            return ChannelCredit(self.capacity, self.output_capacity, self.floating_credit)
        return ChannelCredit(self.exclusive_buffers * size, 0, self.floating_buffers * size, size)

    def restart_strategy(self) -> RestartStrategy:
        """A fresh restart strategy for one run."""
        if self.restart is not None:
            return self.restart
        if self.protocol.takes_checkpoints or self.protocol.tracks_records or self.failures:
            most = RESTARTS_WITH_FAILURES if self.failures else DEFAULT_RESTARTS
            return FixedDelayRestart(most, DEFAULT_RESTART_DELAY_NS)
        return NoRestart()
