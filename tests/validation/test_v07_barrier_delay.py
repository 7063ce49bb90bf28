"""V7: how long a barrier waits behind full buffers."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job, SequenceSource
from tests.validation.targets import Figure, Size, assert_plausible, target

BUFFERS_PER_S = 320
"""Of 32 KiB each, at 10 MiB/s. A record of these studies fills a buffer."""


def delay_s(channels: int, hops: int) -> float:
    """Of a checkpoint when the last task handles 10 MiB/s. Each channel has 2 buffers, each gate 8 floating ones."""
    job = Job("full gates")
    source = SequenceSource(0, 12 * BUFFERS_PER_S, splits=channels)
    stream = job.source(source, name="from", parallelism=channels).rebalance()
    for hop in range(1, hops):
        stream = stream.map(lambda n: n, name=f"hop{hop}", parallelism=1, chain=False)
    stream.sink(CountingSink(), name="slow", parallelism=1, chain=False)
    result = job.run(
        checkpoint_interval="2s", batch_size=1, segment_bytes="32kb",
        cost={
            "source_record": "0s", "record": f"{10**9 // BUFFERS_PER_S}ns", "record_bytes": "32kb",
            "stragglers": {"hop1": 0.5},
        },
    )  # fmt: skip
    waited_ns: int = result.checkpoints["end_to_end_ns"][0]
    return waited_ns / 1e9


@target("V7", "how long does a barrier wait behind full buffers?", study=[delay_s])
def barrier_delay(size: Size) -> Iterator[Figure]:
    """One hop, and two."""
    for channels in (size.of(20, 10), 100)[: size.of(1, 2)]:
        buffers = 2 * channels + 8
        case = f"C = {channels}, {buffers} buffers, s"
        yield Figure(case, buffers / BUFFERS_PER_S, delay_s(channels, 1), 0.03)
        # The second gate has one channel.
        yield Figure(f"{case}, and a second hop", (buffers + 10) / BUFFERS_PER_S, delay_s(channels, 2), 0.03)


def test_a_barrier_waits_for_the_bytes_ahead_of_it() -> None:
    """Delay of a hop = bytes queued / rate. A full gate of C channels holds (2 C + 8) * 32 KiB: 6.5 MiB for C = 100,
    which are 0.65 s at 10 MiB/s. Flink 2.x, network memory tuning guide: 2 exclusive buffers for each channel, 8
    floating ones for each gate, segments of 32 KiB.
    """
    assert_plausible(barrier_delay)
