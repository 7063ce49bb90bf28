"""The keywords of ``Job.run``, typed, so that editors complete them and type checkers find wrong ones.

Settings are declared in ``engine.runtime.config``, which a job does not know; so they are repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from engine.elements.failure_laws import Failures
    from engine.elements.laws import Law
    from engine.observe.provenance import Provenance
    from engine.observe.trace_events import Instrument
    from state_backends.api import StateBackend
    from state_backends.files import FileSystem


class Surroundings(TypedDict, total=False):
    """What is around a run: its places, its observers and its faults."""

    storage: str | PathLike[str]
    """Directory of checkpoints; in memory without it. It is created when missing."""
    restore: bool
    """Whether to start from the newest checkpoint in ``storage``; from the beginning if none has completed."""
    on: str
    """Where the job runs: ``"spark"`` or ``"spark=MASTER"``; without it in the simulator. Needs ``storage``."""
    output_dir: str | PathLike[str]
    """Relative paths of sinks are below this directory; without it below the working directory."""
    file_system: FileSystem
    """Where sources read and sinks write; without it the real file system."""
    kills: Sequence[str]
    """Tasks that die, and when: ``"count[1]@3ms"``, ``"count@3ms"`` (all subtasks), ``"job manager@3ms"``."""
    instruments: Sequence[Instrument]
    """Functions that are called with every event of the run, such as ``MessageCounter()``."""
    provenance: Provenance
    """Is told the causes of each record, such as an effect ledger."""
    audit: bool
    """Whether each completed checkpoint is judged, for the verdict of the result."""
    latency: bool
    """Whether the latency of each record is measured; each record is then a batch of its own. By default it is, in a
    job with :class:`engine.study.Arrivals`."""


# From here on written by `python -m tests.runtime.config.typed_settings`.


class CostOptions(TypedDict, total=False):
    """Virtual costs: ``cost={...}``."""

    source_record: str
    """Time that a source takes to emit a record."""
    record: str
    """Time that any other task takes for a record."""
    record_bytes: int | str | Callable[[Any], int]
    """Size of a record in flight; in Python also a function of the record."""
    link_latency: str
    """Time that an element spends on a channel between two tasks."""
    link_delay: str | Law | None
    """Time beyond that on a channel, at random: a law such as exponential:2ms. Elements keep their order. ``None``
    = none."""
    link_bytes_per_s: int | str | None
    """Bandwidth of a channel. ``None`` = unlimited."""
    host_bytes_per_s: int | str | None
    """Bandwidth of all channels together that leave a host, which has the subtasks of one index. ``None`` =
    unlimited."""
    storage_latency: str
    """Time to begin a file in checkpoint storage. State of up to inline_state_bytes is in no file."""
    storage_bytes_per_s: int | str | None
    """Bandwidth of checkpoint storage, per task. ``None`` = unlimited."""
    storage_delay: str | Law | None
    """Time beyond that to begin a file in checkpoint storage, at random: a law such as pareto:1ms:2.5. ``None`` =
    none."""
    shared_storage_bytes_per_s: int | str | None
    """Bandwidth of checkpoint storage for all tasks together. ``None`` = unlimited."""
    virtual_state: float
    """Factor on the bytes of state in checkpoint storage: what it weighs, while its files stay small."""
    sync: str
    """Time that the synchronous part of a snapshot takes a task."""
    detection: str
    """Time from the death of a task until the job manager misses it, such as a heartbeat timeout."""
    deployment: str
    """Time to deploy tasks after a failure, beyond the restart delay."""
    deployment_per_task: str
    """The same for each task that is deployed."""
    restore_bytes_per_s: int | str | None
    """Speed at which a task reads its state from checkpoint storage. ``None`` = it takes no time."""
    local_restore_bytes_per_s: int | str | None
    """Speed at which a task reads the copy of its state beside it. ``None`` = it takes no time."""
    stragglers: Mapping[str, float]
    """Factor on the record costs of a subtask, vertex or operator."""
    slow_links: Mapping[str, str]
    """Latency of the outgoing channels of a subtask, vertex or operator, instead of link_latency."""


class AckingOptions(TypedDict, total=False):
    """How mode ``acking`` tracks records: ``acking={...}``."""

    ackers: int | None
    """In mode acking: how many track records; 0 = none is tracked, and each counts as acknowledged when it is
    emitted: at most once. ``None`` = one per worker, that is as many as the widest vertex has subtasks."""
    timeout: str | None
    """In mode acking: a record that is not acknowledged is sent again after once to twice this time. ``None`` =
    never: the job waits for the records of a dead task, and fails in the end."""
    max_pending: int | None
    """In mode acking: unacknowledged records of one source subtask. It bounds the memory of the source. ``None`` =
    any number."""
    max_replays: int
    """In mode acking: a record that was sent again so often without an acknowledgement fails the job."""
    recovery: str
    """Time between the death of an acker and its successor, whose memory is empty."""


class Settings(Surroundings, total=False):
    """Every keyword of ``Job.run``."""

    cost: CostOptions
    acking: AckingOptions
    mode: str
    """How checkpoints are taken: aligned (or exactly-once), unaligned, aligned-timeout, at-least-once or none;
    acking takes none and tracks records."""
    seed: int | str
    """Seed of every choice: a number or any text."""
    batch_size: int
    """Records a source emits at a time: 1 for lessons, thousands for throughput."""
    checkpoint_interval: str | None
    """Virtual time, or source records, between checkpoints. In mode acking: between two commits of offsets.
    ``None`` = no periodic checkpoints; the final one is still taken."""
    checkpoint_timeout: str
    """A slower checkpoint is aborted."""
    min_pause: str
    """Least time between the end of one checkpoint and the next periodic one."""
    max_concurrent: int
    """Checkpoints that may be pending together."""
    retained: int
    """Completed checkpoints kept in storage."""
    tolerable_failures: int
    """Consecutive failed checkpoints that do not fail the job."""
    channel_capacity: int | None
    """Credit of a channel in records. ``None`` = two batches."""
    floating_credit: int
    """Credit in records that each task lends to those of its input channels that are full."""
    output_capacity: int
    """Records that a channel holds on the sender's side beyond that credit."""
    segment_bytes: int | str | None
    """Size of a buffer. Then channels hold buffers, in bytes by cost.record_bytes, and not records. ``None`` =
    channels are bounded in records."""
    exclusive_buffers: int
    """With segment_bytes: buffers of each channel."""
    floating_buffers: int
    """With segment_bytes: buffers that each task lends to those of its input channels that are full."""
    seeded_schedule: bool
    """Whether the seed decides the order of tasks within an instant, or the order in which they were woken."""
    restart: str | None
    """After a failure: none, fixed:3:10ms, exponential:10ms:1s:2 or rate:2:1m:10ms. ``None`` = fixed:3:10ms, with
    failures fixed:10000:10ms; none in mode none."""
    service: Mapping[str, str | Law | Callable[[Any], str | Law]]
    """Time that an operator takes for a record, beyond cost.record, by the name of a subtask, vertex or operator: a
    law such as exponential:100ms; in Python also a function of the record that gives one."""
    failures: str | Failures | Sequence[Failures]
    """Failures at random times: laws of the time between two, each with a target: task, host, job manager or
    storage."""
    inline_state_bytes: int | str
    """State up to this size is stored inside the checkpoint's metadata."""
    allow_non_restored_state: bool
    """Whether to drop state that no operator of the job claims, instead of refusing to start from it."""
    aligned_timeout: str | None
    """An older barrier overtakes records. ``None`` = 10ms, or the checkpoint timeout if that is shorter."""
    checkpoints_after_tasks_finish: bool
    """Whether tasks may finish before the job does; if not, a task stays until the last checkpoint of the job."""
    interval_during_backlog: str | None
    """Checkpoint interval while a source works off a backlog; 0s = no periodic checkpoints meanwhile. ``None`` =
    the checkpoint interval."""
    random_first_delay: bool
    """Whether the seed draws the delay of the first periodic checkpoint, between the pause and the interval as in
    Flink; if not, it is the interval."""
    failover: str
    """What a failed task takes with it: all tasks, or those it exchanges records with."""
    master_recovery: str
    """Time between the death of the job manager and its successor."""
    heartbeat_timeout: str
    """A task without a sign of life for longer counts as dead."""
    final_checkpoint_attempts: int
    """Consecutive failures of the last checkpoint of a job that fail the job."""
    debloat_target: str | None
    """Buffer debloating: keep no more records in flight to a task than it takes in this time. ``None`` = off."""
    debloat_period: str | None
    """How often debloating computes the credit of channels. ``None`` = a fifth of the target."""
    debloat_min_records: int
    """The least credit of a channel that debloating sets."""
    debloat_threshold_percent: int
    """Debloating does not apply a change of the credit that is smaller than this part of it."""
    debloat_samples: int
    """Periods over which debloating smooths the credit."""
    state_backend: str | StateBackend
    """What keyed state is kept in: heap, lsm, rocksdb, changelog, or a changelog over another one:
    changelog:lsm."""
    snapshot: str
    """Whether a checkpoint holds all keyed state, or refers to what earlier ones wrote."""
    snapshot_compression: str
    """Compression of full snapshots; zlib writes other bytes in its other versions."""
    local_recovery: bool
    """Keep a copy of each subtask's state beside it, to restore from after a failure."""
    materialization_interval: str | None
    """Of the changelog: virtual time between two snapshots of the state under it. ``None`` = never."""
    preset: str | None
    """Costs that a cluster would have, as --preset names them. ``None`` = no costs."""
