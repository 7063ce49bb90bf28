"""The cost model: the virtual time that work takes. It gives intervals and kill times a meaning.

The default charges 1 µs per source record and nothing else. So one million records take one virtual second, and
everything after the sources happens at the instant its input arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.laws import Law
from engine.elements.setting_fields import DURATION, by_name, setting, settle
from engine.runtime.config.kinds import FACTOR, LAW, RECORD_SIZE, RecordSize

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CostModel:
    """Virtual costs. A time is a whole number of virtual ns, or its text: ``"2ms"``."""

    source_record_ns: int = setting(1_000, "Time that a source takes to emit a record.", least=0)
    record_ns: int = setting(0, "Time that any other task takes for a record.", least=0)
    record_bytes: int | Callable[[Any], int] = setting(
        100, "Size of a record in flight; in Python also a function of the record.", least=0, kind=RECORD_SIZE
    )
    link_latency_ns: int = setting(0, "Time that an element spends on a channel between two tasks.", least=0)
    link_delay: Law | None = setting(
        None, "Time beyond that on a channel, at random: a law such as exponential:2ms. Elements keep their order.",
        kind=LAW, none="none",
    )
    link_bytes_per_s: int | None = setting(None, "Bandwidth of a channel.", least=1, none="unlimited")
    host_bytes_per_s: int | None = setting(
        None, "Bandwidth of all channels together that leave a host, which has the subtasks of one index.", least=1,
        none="unlimited",
    )
    storage_latency_ns: int = setting(
        0, "Time to begin a file in checkpoint storage. State of up to inline_state_bytes is in no file.", least=0
    )
    storage_bytes_per_s: int | None = setting(
        None, "Bandwidth of checkpoint storage, per task.", least=1, none="unlimited"
    )
    storage_delay: Law | None = setting(
        None, "Time beyond that to begin a file in checkpoint storage, at random: a law such as pareto:1ms:2.5.",
        kind=LAW, none="none",
    )
    shared_storage_bytes_per_s: int | None = setting(
        None, "Bandwidth of checkpoint storage for all tasks together.", least=1, none="unlimited"
    )
    virtual_state: float = setting(
        1, "Factor on the bytes of state in checkpoint storage: what it weighs, while its files stay small.",
        kind=FACTOR,
    )
    sync_ns: int = setting(0, "Time that the synchronous part of a snapshot takes a task.", least=0)
    detection_ns: int = setting(
        0, "Time from the death of a task until the job manager misses it, such as a heartbeat timeout.", least=0
    )
    deployment_ns: int = setting(0, "Time to deploy tasks after a failure, beyond the restart delay.", least=0)
    deployment_per_task_ns: int = setting(0, "The same for each task that is deployed.", least=0)
    restore_bytes_per_s: int | None = setting(
        None, "Speed at which a task reads its state from checkpoint storage.", least=1, none="it takes no time"
    )
    local_restore_bytes_per_s: int | None = setting(
        None, "Speed at which a task reads the copy of its state beside it.", least=1, none="it takes no time"
    )
    stragglers: Mapping[str, float] = setting(
        factory=dict, text="Factor on the record costs of a subtask, vertex or operator.", kind=by_name(FACTOR)
    )
    slow_links: Mapping[str, int] = setting(
        factory=dict,
        text="Latency of the outgoing channels of a subtask, vertex or operator, instead of link_latency.",
        kind=by_name(DURATION),
    )

    def __post_init__(self) -> None:
        settle(self, "cost model: ")
        if callable(self.record_bytes) and not isinstance(self.record_bytes, RecordSize):
            object.__setattr__(self, "record_bytes", RecordSize(self.record_bytes))
        for name, factor in self.stragglers.items():
            if not (isfinite(factor) and factor >= 0):
                raise ConfigurationError(f"cost model: straggler factor of {name!r} is {factor}, not 0 or more")
        if not (isfinite(self.virtual_state) and self.virtual_state >= 0):
            raise ConfigurationError(f"cost model: virtual_state is {self.virtual_state}; it must be 0 or more")
        for name, latency_ns in self.slow_links.items():
            if latency_ns < 0:
                raise ConfigurationError(f"cost model: latency of {name!r} is {latency_ns} ns, below 0")

    def record_cost_ns(self, names: Sequence[str], *, is_source: bool) -> int:
        """Virtual ns per record of the subtask that goes by these names (see ``VertexPlan.names_of``)."""
        return round((self.source_record_ns if is_source else self.record_ns) * self.factor(names))

    def factor(self, names: Sequence[str]) -> float:
        """By how much a straggler of these names is slower."""
        return next((self.stragglers[name] for name in names if name in self.stragglers), 1.0)

    def latency_ns(self, sender_names: Sequence[str]) -> int:
        """Virtual ns that an element of this sender is under way."""
        return next((self.slow_links[name] for name in sender_names if name in self.slow_links), self.link_latency_ns)

    def bytes_of(self, batch: Batch) -> int:
        """The size of records in flight."""
        size = self.record_bytes
        return batch.size * size if isinstance(size, int) else sum(map(size, batch.values))

    def transfer_ns(self, size_bytes: int) -> int:
        """Virtual ns that records of this size occupy a channel."""
        return 0 if self.link_bytes_per_s is None else size_bytes * _SECOND_NS // self.link_bytes_per_s

    def host_transfer_ns(self, size_bytes: int) -> int:
        """Virtual ns that records of this size occupy the link of a host."""
        return 0 if self.host_bytes_per_s is None else size_bytes * _SECOND_NS // self.host_bytes_per_s

    def transferred_records(self, batch: Batch, elapsed_ns: int) -> int:
        """How many records of a batch pass a channel of limited bandwidth in this time."""
        assert self.link_bytes_per_s is not None
        size, passed_bytes = self.record_bytes, elapsed_ns * self.link_bytes_per_s // _SECOND_NS
        if isinstance(size, int):
            return min(batch.size, passed_bytes // max(1, size))
        return sum(end <= passed_bytes for end in accumulate(map(size, batch.values)))

    @property
    def has_storage_times(self) -> bool:
        """Whether checkpoint storage takes more than latency and the bandwidth of each task."""
        extra = (self.storage_delay, self.shared_storage_bytes_per_s)
        return extra != (None, None) or self.virtual_state != 1 or self.has_restore_times

    @property
    def has_restore_times(self) -> bool:
        """Whether reading state takes time."""
        return (self.restore_bytes_per_s, self.local_restore_bytes_per_s) != (None, None)

    def virtual_bytes(self, size_bytes: int) -> int:
        """What so many bytes of state weigh."""
        return size_bytes if self.virtual_state == 1 else round(size_bytes * self.virtual_state)

    def deploy_ns(self, tasks: int) -> int:
        """Virtual ns to deploy so many tasks."""
        return self.deployment_ns + tasks * self.deployment_per_task_ns

    def storage_ns(self, files: int, size_bytes: int) -> int:
        """Virtual ns to begin ``files`` files in checkpoint storage and write ``size_bytes`` to them."""
        if self.storage_bytes_per_s is None:
            return files * self.storage_latency_ns
        return files * self.storage_latency_ns + size_bytes * 1_000_000_000 // self.storage_bytes_per_s
