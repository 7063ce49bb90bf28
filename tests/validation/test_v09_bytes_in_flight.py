"""V9: what an unaligned checkpoint stores of records in flight."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from engine import CollectionSource, CountingSink, Job
from tests.validation.targets import Figure, Size, assert_plausible, target

KIB_32 = 32 << 10


def stuck(parallelism: int, record_ms: int, interval_ms: int) -> dict[str, Any]:
    """The first checkpoint of an all-to-all job whose sinks are so slow that every buffer is full. A record fills a
    buffer: each channel has 2, and each sink lends 8."""
    job = Job("stuck", parallelism=parallelism)
    records = CollectionSource(list(repeat(0, parallelism * parallelism * 12)), splits=parallelism)
    job.source(records, name="from").rebalance().sink(CountingSink(), name="slow")
    result = job.run(
        mode="unaligned", batch_size=parallelism, segment_bytes=KIB_32, inline_state_bytes=0,
        checkpoint_interval=f"{interval_ms}ms",
        cost={
            "source_record": "0s", "record": f"{record_ms}ms", "record_bytes": KIB_32, "storage_latency": "500ms",
        },
    )  # fmt: skip
    return dict(next(iter(result.checkpoints)))


@target("V9", "how much does an unaligned checkpoint store?", study=[stuck])
def bytes_in_flight(size: Size) -> Iterator[Figure]:
    """Receivers have one record in service when the checkpoint begins, and have handled it when its barrier comes."""
    for parallelism in (size.of(4, 10), 20)[: size.of(1, 2)]:
        bound = parallelism * (2 * parallelism + 8) * KIB_32
        fast, slow = stuck(parallelism, 100, 900), stuck(parallelism, 1_000, 900)
        in_service = parallelism * KIB_32
        case = f"p = {parallelism}, bound {bound / 2**20:.4g} MiB"
        yield Figure(f"{case}: bytes stored and in service", bound, slow["persisted_bytes"] + in_service, 0)
        yield Figure(f"{case}: bytes above the bound", 0, max(0, fast["persisted_bytes"] - bound), 0)
    fast, slow = stuck(10, 2, 11), stuck(10, 20, 110)
    assert min(fast["persisted_bytes"], slow["persisted_bytes"]) > 10 * 28 * KIB_32 / 2
    ratio = slow["end_to_end_ns"] / fast["end_to_end_ns"]
    yield Figure("duration when sinks are 10 times as slow, relative", 1, ratio, 0.1)


def test_the_bytes_stored_are_those_of_full_buffers() -> None:
    """At most p (2 p + 8) * 32 KiB for an all-to-all edge, on its input side: 8.75 MiB for p = 10, and that when it
    is saturated. The duration does not depend on how slow the job is (Flink 2.x, network memory tuning guide:
    exclusive and floating buffers; checkpointing under backpressure).
    """
    assert_plausible(bytes_in_flight)
