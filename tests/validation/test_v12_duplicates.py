"""V12: how many records at-least-once counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from engine import CollectedResults, Job
from engine.elements.laws import DRAW_BOUND
from engine.study import Arrivals, Exponential, Periodic
from tests.validation.targets import Figure, Size, assert_plausible, mean_figure, target

LAW, GAP_NS, KILL_NS = Exponential("10ms"), 5_000_000, 300_000_000
CHECKPOINT_NS = 150_000_000


def counted_twice(latencies_ns: list[int], seed: int) -> int:
    """A record each 5 ms on every channel. The task is killed after its checkpoint. Returns what it counts too much."""
    channels, results = len(latencies_ns), CollectedResults()
    job, count = Job("counted twice"), 64 * channels
    calls = Arrivals(Periodic(f"{channels * 200}/s"), count=count, splits=channels)
    stream = job.source(calls, name="from", parallelism=channels)
    total = stream.key_by(lambda n: 0, value=lambda n: 1).reduce(lambda a, b: a + b, name="sum", parallelism=1)
    total.collect(results, parallelism=1)
    slow_links = {f"from[{index}]": f"{latency_ns}ns" for index, latency_ns in enumerate(latencies_ns)}
    job.run(
        mode="at-least-once", checkpoint_interval=f"{CHECKPOINT_NS}ns", kills=[f"sum@{KILL_NS - 1}ns"], seed=seed,
        latency=False, cost={"source_record": "0s", "slow_links": slow_links},
    )
    return max(results.records) - count


def drawn_latencies(channels: int, runs: int) -> list[list[int]]:
    """For each run and channel, from a Latin hypercube: each channel has every part of the law once."""
    random = Random(channels)
    columns = [random.sample(range(runs), runs) for _ in range(channels)]
    return [
        [LAW.quantile_ns(int((column[run] + random.random()) / runs * DRAW_BOUND)) for column in columns]
        for run in range(runs)
    ]


@target("V12", "how many records does at-least-once count twice?", study=[counted_twice], seeds=300, quick_seeds=4)
def duplicates(size: Size) -> Iterator[Figure]:
    """A run has one checkpoint before the kill. Each seed is a run with latencies of its own."""
    for channels, runs in ((10, len(size.seeds)), (100, len(size.seeds) // 4 if size.full else 0)):
        latencies, found, wrong = drawn_latencies(channels, max(runs, 1)), [], 0
        for seed in range(runs):
            slowest_ns = max(latencies[seed])
            found.append(counted_twice(latencies[seed], seed))
            # Record k of channel c is due at 5 (k + c / channels) ms. It is counted twice if it is sent after the
            # barrier and comes before the last barrier.
            rule = sum(
                sum(
                    1
                    for due_ns in range(number * GAP_NS // channels, KILL_NS, GAP_NS)
                    if CHECKPOINT_NS < due_ns < CHECKPOINT_NS + slowest_ns - latency_ns
                )
                for number, latency_ns in enumerate(latencies[seed])
            )
            wrong += found[-1] != rule
        if runs:
            yield Figure(f"p = {channels}: runs that differ from the sum over channels", 0, wrong, 0)
            mean = sum(1 / k for k in range(2, channels + 1))
            scaled = [count / channels * GAP_NS / LAW.mean_ns for count in found]
            yield mean_figure(f"p = {channels}: duplicates / (rate * mean delay)", mean, scaled, 0.02)


def test_duplicates_are_those_between_the_barriers() -> None:
    """Sum over channels of rate_c (B_max - B_c), B_c being the arrival of the barrier of channel c; for exponential
    delays of mean d the mean is rate d (H(p) - 1), H(p) = 1 + 1/2 + ... + 1/p: the greatest of p has mean d H(p).
    """
    assert_plausible(duplicates)
