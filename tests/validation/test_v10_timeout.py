"""V10: aligned checkpoints with a timeout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine import CountingSink, Job, SequenceSource
from engine.report import ResultTable
from tests.validation.targets import Figure, Size, assert_plausible, target

CHANNELS, MS = 5, 1_000_000
TIMEOUTS_MS = (50, 150, 300, 500, 800)


def checkpoints(records: int, **mode: Any) -> ResultTable:
    """Of a job with a slow sink: 100 records of 4 ms are queued, so an aligned checkpoint takes 400 ms."""
    job = Job("slow")
    source = SequenceSource(0, records, splits=CHANNELS)
    job.source(source, name="from", parallelism=CHANNELS).rebalance().sink(CountingSink(), name="slow", parallelism=1)
    # The interval is not a multiple of the 4 ms, so that barriers come at all moments of a service.
    return job.run(
        checkpoint_interval="701ms", batch_size=1, channel_capacity=20, inline_state_bytes=0,
        cost={"source_record": "0s", "record": "4ms", "storage_latency": "10ms"}, **mode,
    ).checkpoints  # fmt: skip


@target("V10", "does a timeout bound the duration?", study=[checkpoints])
def timeout(size: Size) -> Iterator[Figure]:
    """Counts how many checkpoints break a rule. Those at the end of the job do not wait in full queues."""
    records = size.of(1_600, 4_000)
    last_ns = (records - 200) * 4 * MS
    aligned, unaligned = checkpoints(records, mode="aligned"), checkpoints(records, mode="unaligned")
    slow_ns, fast_ns = max(aligned["end_to_end_ns"]), max(unaligned["end_to_end_ns"])
    for timeout_ms in TIMEOUTS_MS[size.of(1, 0) : size.of(4, 5)]:
        found = checkpoints(records, mode="aligned-timeout", aligned_timeout=f"{timeout_ms}ms")
        rows = [row for row in found if row["triggered_at_ns"] < last_ns]
        assert rows
        slower = [row for row in rows if row["end_to_end_ns"] > timeout_ms * MS + fast_ns]
        yield Figure(f"{timeout_ms} ms: checkpoints longer than it and an unaligned one", 0, len(slower), 0)
        waits = timeout_ms * MS < slow_ns
        wrong = [row for row in rows if (row["persisted_bytes"] > 0) != waits]
        yield Figure(f"{timeout_ms} ms: that store records against the rule", 0, len(wrong), 0)


def test_a_checkpoint_with_a_timeout_is_aligned_or_short() -> None:
    """Duration <= timeout + that of an unaligned checkpoint; records in flight are stored exactly if the aligned one
    would take longer than the timeout (Flink 2.x, checkpointing under backpressure: aligned checkpoint timeout).
    """
    assert_plausible(timeout)
