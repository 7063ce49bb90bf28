"""V3: a search finds the rate that a job can sustain."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job, RunResult
from engine.study import Arrivals, Constant, Periodic, sweep
from tests.validation.targets import Figure, Size, assert_plausible, target


def loaded(rate: float, capacity: float, count: int) -> RunResult:
    """Fails when a hundredth of the records wait."""
    job = Job("load")
    source = Arrivals(Periodic(f"{rate}/s"), count=count, most_waiting=count // 200)
    job.source(source, name="calls").map(lambda n: n, name="server", chain=False).sink(CountingSink(), name="end")
    law = Constant(round(1e9 / capacity))
    return job.run(
        mode="none", service={"server": law}, channel_capacity=1, cost={"source_record": "0s"}, latency=False
    )


def sustained(rates: range, capacity: float, count: int) -> int:
    """The greatest rate at which no queue grows for ever."""
    table = sweep(loaded, rate=list(rates), capacity=capacity, count=count)
    return max(int(row["rate"]) for row in table if row["status"] == "ok")


@target("V3", "does a search find the sustainable rate?", study=[loaded, sustained])
def search(size: Size) -> Iterator[Figure]:
    """Rates in thousands of records per second. One step of the search is 5 thousand."""
    step = size.of(20, 5)
    systems = (("Trident", 111.0, 110, 130), ("Beam on Flink", 156.7, 135, 170))
    for system, capacity, low, high in systems[: size.of(1, 2)]:
        found = sustained(range(90, 191, step), capacity, size.of(1_000, 4_000))
        yield Figure(f"{system}: capacity {capacity}k/s", capacity, found + step / 2, step / 2 / capacity)
        case = f"{system}: published knee between {low}k/s and {high}k/s"
        if size.full:
            yield Figure(case, (low + high) / 2, found, (high - low) / (high + low))


def test_the_search_ends_within_a_step_of_the_capacity() -> None:
    """Below mu no queue grows, above it one does. The capacities are those of V2, fitted to published data; the knees
    are the rates between which the published latencies leave the level of seconds (Yahoo streaming benchmark, raw
    results: Trident 110 and 130 thousand per second, Beam on Flink 135 and 170).
    """
    assert_plausible(search)
