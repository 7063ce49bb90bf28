"""The cost model: the virtual time that work takes. It gives intervals and kill times a meaning.

The default charges 1 µs per source record and nothing else. So one million records take one virtual second, and
everything after the sources happens at the instant its input arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from engine.elements.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CostModel:
    """Virtual costs, all in ns unless said otherwise.

    ``source_record_ns``    per record a source emits;
    ``record_ns``           per record any other task handles;
    ``link_latency_ns``     per element on a channel between two tasks;
    ``link_bytes_per_s``    bandwidth of a channel, ``None`` = unlimited; a record counts ``record_bytes``;
    ``storage_latency_ns``  per file that a task writes to checkpoint storage; state of up to ``inline_state_bytes``
                            (see :class:`engine.RunConfig`) is in no file;
    ``storage_bytes_per_s`` bandwidth of checkpoint storage per task, ``None`` = unlimited;
    ``stragglers``          name of a subtask, vertex or operator -> factor on its record costs;
    ``slow_links``          name of the sending subtask, vertex or operator -> latency of its outgoing channels.
    """

    source_record_ns: int = 1_000
    record_ns: int = 0
    record_bytes: int = 100
    link_latency_ns: int = 0
    link_bytes_per_s: int | None = None
    storage_latency_ns: int = 0
    storage_bytes_per_s: int | None = None
    stragglers: Mapping[str, float] = field(default_factory=dict)
    slow_links: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("source_record_ns", "record_ns", "record_bytes", "link_latency_ns", "storage_latency_ns"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"cost model: {name} is {getattr(self, name)}; costs cannot be negative")
        for name in ("link_bytes_per_s", "storage_bytes_per_s"):
            bandwidth = getattr(self, name)
            if bandwidth is not None and bandwidth < 1:
                raise ConfigurationError(f"cost model: {name} is {bandwidth}; it must be at least 1, or None")
        for name, factor in self.stragglers.items():
            if not (isfinite(factor) and factor >= 0):
                raise ConfigurationError(f"cost model: straggler factor of {name!r} is {factor}, not 0 or more")
        for name, latency_ns in self.slow_links.items():
            if latency_ns < 0:
                raise ConfigurationError(f"cost model: latency of {name!r} is {latency_ns} ns, below 0")

    def record_cost_ns(self, names: Sequence[str], *, is_source: bool) -> int:
        """Virtual ns per record of the subtask that goes by these names (see ``VertexPlan.names_of``)."""
        base = self.source_record_ns if is_source else self.record_ns
        return round(base * next((self.stragglers[name] for name in names if name in self.stragglers), 1.0))

    def latency_ns(self, sender_names: Sequence[str]) -> int:
        """Virtual ns that an element of this sender is under way."""
        return next((self.slow_links[name] for name in sender_names if name in self.slow_links), self.link_latency_ns)

    def transfer_ns(self, records: int) -> int:
        """Virtual ns that ``records`` occupy a channel."""
        if self.link_bytes_per_s is None:
            return 0
        return records * self.record_bytes * 1_000_000_000 // self.link_bytes_per_s

    def transferred_records(self, elapsed_ns: int) -> int:
        """How many records pass a channel of limited bandwidth in this time."""
        assert self.link_bytes_per_s is not None
        return elapsed_ns * self.link_bytes_per_s // (max(1, self.record_bytes) * 1_000_000_000)

    def storage_ns(self, files: int, size_bytes: int) -> int:
        """Virtual ns to begin ``files`` files in checkpoint storage and write ``size_bytes`` to them."""
        if self.storage_bytes_per_s is None:
            return files * self.storage_latency_ns
        return files * self.storage_latency_ns + size_bytes * 1_000_000_000 // self.storage_bytes_per_s
