"""V5: alignment time against parallelism, from order statistics."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job
from engine.study import Arrivals, Exponential, Law, Trace, Uniform
from tests.validation.targets import Figure, Size, assert_plausible, mean_figure, target


def alignments_s(senders: int, receivers: int, checkpoints: int, law: Law, seed: int) -> list[float]:
    """How long each receiver waits from the first barrier to the last one."""
    job = Job("alignment")
    ends = Arrivals(Trace([f"{checkpoints * 100 + 50}s"] * senders), splits=senders)
    calls = job.source(ends, name="from", parallelism=senders)
    calls.rebalance().sink(CountingSink(), name="to", parallelism=receivers)
    result = job.run(checkpoint_interval="100s", seed=seed, latency=False, cost={"link_delay": law})
    rows = result.execution.checkpoints.rows()[:checkpoints]
    return [one.number("alignment_ns") / 1e9 for row in rows for one in row.subtasks if one.task[0] == 1]


def harmonic(count: int) -> float:
    """1 + 1/2 + ... + 1/count."""
    return sum(1 / k for k in range(1, count + 1))


@target("V5", "how long is an alignment of p channels?", study=[alignments_s], seeds=10, quick_seeds=1)
def alignment_time(size: Size) -> Iterator[Figure]:
    """Receivers beside each other are independent samples."""
    for senders, receivers, checkpoints in ((10, 20, 80), (100, 20, 12), (1_000, 20, 5))[: size.of(1, 3)]:
        laws: tuple[tuple[str, Law, float], ...] = (
            ("exponential", Exponential("1s"), harmonic(senders - 1)),
            ("uniform", Uniform("0s", "1s"), (senders - 1) / (senders + 1)),
        )
        for name, law, expected in laws:
            each = size.of(10, checkpoints)
            found = [one for seed in size.seeds for one in alignments_s(senders, receivers, each, law, seed)]
            yield mean_figure(f"p = {senders:,}, {name} delays, in their mean or greatest", expected, found, 0.01)


def test_the_alignment_is_the_range_of_the_delays() -> None:
    """Of p exponential delays of mean d the range is d (1 + 1/2 + ... + 1/(p-1)) on average, of delays uniform up to U
    it is U (p-1) / (p+1): H. A. David and H. N. Nagaraja: Order Statistics, 2.2 and 2.5.
    """
    assert_plausible(alignment_time)
