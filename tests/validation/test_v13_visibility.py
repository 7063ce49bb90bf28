"""V13: how long it takes until a record is committed."""

from __future__ import annotations

from collections.abc import Iterator

from engine import Job
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.study import Arrivals, Poisson
from tests.validation.targets import Figure, Size, assert_plausible, target

INTERVAL_S, DURATION_S = 10.0, 2.0


class Commits(Operator):
    """Notes how old each record is when the checkpoint that it belongs to is complete."""

    def __init__(self, ages_s: list[float]) -> None:
        self._ages_s, self._open, self._closed = ages_s, list[int](), dict[int, list[int]]()

    def process_batch(self, batch: Batch) -> None:
        """Records come at the time at which they are due."""
        self._open += [self.context.processing_time_ns()] * batch.size

    def snapshot_state(self, checkpoint_id: int) -> None:
        """A transaction ends."""
        self._closed[checkpoint_id], self._open = self._open, []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """It is committed."""
        now_ns = self.context.processing_time_ns()
        self._ages_s += [(now_ns - one) / 1e9 for one in self._closed.pop(checkpoint_id, [])]


def ages_s(records: int, seed: int) -> list[float]:
    """A record each 100 ms on average, a checkpoint each 10 s that takes 2 s."""
    job, ages = Job("commits"), list[float]()
    calls = job.source(Arrivals(Poisson("10/s"), count=records), name="calls")
    calls.sink(lambda: Commits(ages), name="commits")
    job.run(
        checkpoint_interval=f"{INTERVAL_S}s", seed=seed, latency=False, inline_state_bytes=0,
        cost={"source_record": "0s", "storage_latency": f"{DURATION_S}s"},
    )
    return sorted(ages)


@target("V13", "when is a record visible?", study=[Commits, ages_s], seeds=20)
def visibility(size: Size) -> Iterator[Figure]:
    """Mean and percentiles of all records."""
    found = sorted(one for seed in size.seeds for one in ages_s(size.of(2_000, 5_000), seed))
    mean = sum(found) / len(found)
    yield Figure("mean, s", DURATION_S + INTERVAL_S / 2, mean, 0.02)
    yield Figure("p99, s", DURATION_S + 0.99 * INTERVAL_S, found[round(0.99 * len(found))], 0.02)
    yield Figure("least, s", DURATION_S, found[0], 0.02)


def test_a_record_is_visible_after_its_checkpoint() -> None:
    """A record comes at a uniform moment of the interval T, and waits for the barrier and then for the duration C:
    uniform on [C, C + T], mean C + T / 2, 99th percentile C + 0.99 T (two-phase commit: sinks commit when the
    checkpoint is complete).
    """
    assert_plausible(visibility)
