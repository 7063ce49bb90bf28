"""V2: latency when more records come than the job can handle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine import CountingSink, Job
from engine.study import Arrivals, Constant, Periodic
from tests.validation.targets import Figure, Size, assert_plausible, target


def latency_s(rate: float, capacity: float, seconds: float) -> dict[str, Any]:
    """Of the records that come in so many seconds; all of them are worked off."""
    job = Job("overload")
    source = Arrivals(Periodic(f"{rate}/s"), count=round(rate * seconds))
    job.source(source, name="calls").map(lambda n: n, name="server", chain=False).sink(CountingSink(), name="end")
    law = Constant(round(1e9 / capacity))
    result = job.run(mode="none", service={"server": law}, channel_capacity=10, cost={"source_record": "0s"})
    return next({name: row[f"{name}_ns"] / 1e9 for name in ("p50", "p90", "max")}
                for row in result.latency if (row["kind"], row["of"]) == ("event", "end"))  # fmt: skip


TRIDENT = ((130, 259), (150, 475), (170, 644))
"""Storm Trident in the Yahoo streaming benchmark: thousands of events per second, greatest latency in s (repository
yahoo/streaming-benchmarks and its extension with raw results, runs/results; the final-write latency)."""
TRIDENT_CAPACITY, TRIDENT_S = 111.0, 1_830

ESPBENCH = (("Flink", 1, 307, 615.1, 676.5), ("Jet", 1, 337, 533.2, 590.2),
            ("Flink", 10, 317, 8175.8, 9147.7), ("Jet", 10, 350, 7425.4, 8282.0))  # fmt: skip
"""Query 2 of ESPBench, 300 s: system, thousands of records per second, the capacity (records per second) that was
fitted, and the published p90 and greatest latency in s (G. Hesse et al.: ESPBench, ICPE 2021, table 7). The published
means are 0.50 to 0.53 of the greatest, that of a ramp is 0.5."""


@target("V2", "how does latency grow above the capacity?", study=[latency_s])
def ramp(size: Size) -> Iterator[Figure]:
    """One record of the simulation stands for many of the published run."""
    rate, capacity, seconds = 20, 10, size.of(30, 300)
    found = latency_s(rate, capacity, seconds)
    yield Figure("20/s against 10/s: greatest, s", seconds * (rate / capacity - 1), found["max"], 0.01)
    yield Figure("p50 / greatest", 0.5, found["p50"] / found["max"], 0.02)
    yield Figure("p90 / greatest", 0.9, found["p90"] / found["max"], 0.02)
    for thousands, published_s in TRIDENT if size.full else ():
        # The last record that was handled within the run had come at its end times capacity / rate.
        found = latency_s(thousands / 10, TRIDENT_CAPACITY / 10, TRIDENT_S * TRIDENT_CAPACITY / thousands)
        yield Figure(f"Trident, {thousands}k/s: greatest, s (fit to published data)", published_s, found["max"], 0.04)
    for system, thousands, fitted, *published in ESPBENCH[: size.of(1, 4)]:
        scale = 100 * thousands * size.of(4, 1)
        found = latency_s(1_000 * thousands / scale, fitted / scale, 300)
        for name, expected in zip(("p90", "max"), published, strict=True):
            case = f"ESPBench Q2, {system}, {thousands}k/s: {name}, s (fit to published data)"
            yield Figure(case, expected, found[name], 0.04)


def test_latency_is_a_ramp_above_the_capacity() -> None:
    """Record at time t waits t (lambda / mu - 1): after T seconds of arrivals at most T (lambda / mu - 1), half of that
    on average. Of the records handled by time W: at most W (1 - mu / lambda).
    """
    assert_plausible(ramp)
