"""Lists on a changelog that materialises while records come: one every 200 us, a materialisation every millisecond."""

from __future__ import annotations

from collections.abc import Iterable

from engine import Job, KeyedProcessContext, KeyedProcessFunction, SequenceSource
from operators.log.connectors.log_sink import LogSink

KEYS = 5

SCENARIO = {
    "state_backend": "changelog",
    "materialization_interval_ns": 1_000_000,
    "inline_state_bytes": 0,
    "cost.source_record_ns": 200_000,
    "cost.storage_latency_ns": 60_000,
    "checkpoint_interval": "6rec",
    "checkpoint_timeout_ns": 1_000_000_000,
    "heartbeat_timeout_ns": 1_000_000_000,
    "tolerable_failures": 100,
    "debloat_target_ns": None,
    "modes": ["aligned", "unaligned"],
}


class HowMany(KeyedProcessFunction):
    """Keeps all numbers of a key, and emits how many there are."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self._numbers = ctx.list_state("numbers")

    def process_element(self, value: int, ctx: KeyedProcessContext) -> Iterable[object]:
        self._numbers.add(value)
        return [(ctx.current_key, len(self._numbers.get()))]


def job(parallelism: int | None = None) -> Job:
    """Two sources, lists in two subtasks, a transactional sink."""
    made = Job("logged-lists", max_parallelism=8)
    numbers = made.source(SequenceSource(0, 40, splits=2), name="numbers", uid="numbers", parallelism=2)
    listed = numbers.key_by(lambda number: number % KEYS).process(
        HowMany, name="list", uid="list", parallelism=parallelism or 2
    )
    return listed.rebalance().sink(LogSink("rows"), name="out", uid="out", parallelism=1)
