"""V1: queues of one server, against the textbook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine import CountingSink, Job, RunResult
from engine.elements.laws import Law
from engine.study import Arrivals, Constant, Exponential, Poisson
from tests.validation.targets import Figure, Size, assert_plausible, mean_figure, target

MS = 1_000_000


def queue(rate: str, service: Mapping[str, Law], count: int, seed: int) -> RunResult:
    """Servers one after the other; records arrive as a Poisson process."""
    job = Job("queue")
    stream = job.source(Arrivals(Poisson(rate), count=count), name="calls")
    *before, last = service
    for name in before:
        stream = stream.map(lambda n: n, name=name, chain=False)
    stream.sink(CountingSink(), name=last, chain=False)
    return job.run(
        mode="none", seed=seed, service=service, cost={"source_record": "0s"}, channel_capacity=1_000_000,
    )  # fmt: skip


def mean_ms(result: RunResult) -> float:
    """The mean time of a record in all servers together."""
    return sum(row["mean_ns"] for row in result.latency if row["kind"] == "sojourn") / MS


def lindley_ns(result: RunResult, rate: Exponential, law: Law) -> int:
    """The sojourns of all records together, from the times that were drawn."""
    drawn = {name: [one.value for one in result.execution.choices.log if one.stream.startswith(name)] for name in
             ("arrivals of", "service of")}  # fmt: skip
    due_ns = free_ns = total_ns = 0
    # The time of the record after the last one is drawn, too.
    for gap, service in zip(drawn["arrivals of"], drawn["service of"], strict=False):
        due_ns += rate.quantile_ns(gap)
        free_ns = max(due_ns, free_ns) + law.quantile_ns(service)
        total_ns += free_ns - due_ns
    return total_ns


@target("V1", "how long is a record in a queue?", study=[queue], seeds=40, quick_seeds=5)
def sojourn(size: Size) -> Iterator[Figure]:
    """Quick: the recursion, which is exact, and short runs of two queues in a row."""
    law, count = Exponential("100ms"), size.of(400, 20_000)
    first = queue("8/s", {"server": law}, count, 0)
    assert first.latencies is not None
    total_ns = lindley_ns(first, Exponential("125ms"), law)
    yield Figure("M/M/1, ns of all records: Lindley", total_ns, first.latencies.sojourns["server"].total, 0)
    cases: tuple[tuple[str, str, dict[str, Law], float, range], ...] = (
        ("M/M/1, load 0.8, ms", "8/s", {"server": law}, 500, size.seeds),
        ("M/D/1, load 0.8, ms (20 seeds)", "8/s", {"server": Constant("100ms")}, 300, size.seeds[:20]),
        ("two M/M/1 in a row, ms (12 seeds)", "5/s", {"one": law, "two": Exponential("120ms")}, 500, size.seeds[:12]),
    )
    for case, rate, service, expected_ms, seeds in cases:
        # At a load of 0.8 a short run, which begins with an empty queue, is far off.
        if size.full or "load 0.8" not in case:
            yield mean_figure(case, expected_ms, [mean_ms(queue(rate, service, count, seed)) for seed in seeds], 0.02)


def test_a_record_is_in_a_queue_as_long_as_the_textbook_says() -> None:
    """M/M/1: 1 / (mu - lambda). M/D/1: 1 / mu + rho / (2 mu (1 - rho)) (Pollaczek and Khinchine). Queues in a row:
    the sum (Burke, Jackson). Each record: Lindley's recursion. L. Kleinrock: Queueing Systems I, chapters 3-5.
    """
    assert_plausible(sojourn)
