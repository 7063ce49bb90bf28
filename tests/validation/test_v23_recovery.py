"""V23: how long a job takes to catch up after a failure."""

from __future__ import annotations

from collections.abc import Iterator

from engine import Job
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.study import Arrivals, Constant, Periodic
from tests.validation.targets import Figure, Size, assert_plausible, target

DOWN_S, CAPACITY = 71, 141.8
"""Fitted to the published times: seconds until the job runs again, and thousands of records per second. The greatest
throughput seen in those runs is 140.6 to 146.7."""
PUBLISHED = ((10, 181.8), (30, 177.2), (60, 212.3), (90, 257.8), (120, 294.3))
"""Checkpoint interval, and seconds until the job had caught up, on average over 12 rates from 57 to 91 thousand records
per second (dos-group/khaos, data of the Yahoo streaming benchmark; M. Geldenhuys et al.: Khaos, 2021)."""
RATES = [57 + 34 * step / 11 for step in range(12)]


class Lateness(Operator):
    """Notes when each record has been handled, and how late that is."""

    def __init__(self, seen: list[tuple[int, int]]) -> None:
        self._seen = seen

    def process_batch(self, batch: Batch) -> None:
        """The event time of a record is the time at which it is due."""
        now_ns = self.context.processing_time_ns()
        self._seen += [(now_ns, now_ns // 1_000_000 - due_ms) for due_ms in batch.timestamps or ()]


def recovery_s(interval_s: int, rate: float) -> float:
    """From a failure, just before a checkpoint, until no record waits. A record stands for 10,000."""
    job, seen = Job("recovery"), list[tuple[int, int]]()
    failed_s, service_ns = 2 * interval_s, round(1e9 / (CAPACITY / 10))
    count = round((failed_s + 2 * law_s(interval_s, rate)) * rate / 10)
    calls = job.source(Arrivals(Periodic(f"{rate / 10:.6f}/s"), count=count), name="calls")
    calls.map(lambda n: n, name="server", chain=False).sink(lambda: Lateness(seen), name="end")
    result = job.run(
        checkpoint_interval=f"{interval_s}s", restart=f"fixed:1:{DOWN_S}s", kills=[f"server@{failed_s * 1_000 - 1}ms"],
        service={"server": Constant(service_ns)}, cost={"source_record": "0s"}, latency=False,
    )
    failed_ns = result.execution.started_ns + failed_s * 10**9
    return next(now - failed_ns for now, late_ms in seen if now > failed_ns and late_ms < 1.5 * service_ns / 1e6) / 1e9


def law_s(interval_s: float, rate: float) -> float:
    """What was lost and what came meanwhile is worked off by the capacity that is left."""
    return DOWN_S + (DOWN_S + interval_s) * rate / (CAPACITY - rate)


@target("V23", "how long does a job take to catch up?", study=[Lateness, recovery_s])
def catching_up(size: Size) -> Iterator[Figure]:
    """Against the law at several rates, and against the published means."""
    for interval_s, rate in ((10, 57), (30, 76), (60, 76), (120, 91))[: size.of(1, 4)]:
        case = f"interval {interval_s} s, {rate}k/s, s"
        yield Figure(case, law_s(interval_s, rate), recovery_s(interval_s, rate), 0.02)
    if size.full:
        found = [sum(recovery_s(interval_s, rate) for rate in RATES) / len(RATES) for interval_s, _ in PUBLISHED]
        errors = [abs(one / seconds - 1) for one, (_, seconds) in zip(found, PUBLISHED, strict=True)]
        case = "mean relative error against five published means (fit to published data)"
        yield Figure(case, 0, sum(errors) / len(errors), 0.08)


def test_a_job_catches_up_with_the_capacity_that_is_left() -> None:
    """T = D + (D + CI) lambda / (mu - lambda) when all of an interval CI is lost. D and mu are fitted to the published
    recovery times.
    """
    assert_plausible(catching_up)
