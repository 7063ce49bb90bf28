"""V32: what it takes to know that a record has been handled."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job, SequenceSource
from engine.protocols.acking.acker import Acker
from engine.protocols.acking.anchoring import Ack, IdStream, Init
from tests.validation.targets import Figure, Size, assert_plausible, target


def acked(records: int, copies: int) -> tuple[int, int]:
    """Tuples of a job in which each record becomes several, and acknowledgements."""
    job = Job("acked", parallelism=2)
    numbers = job.source(SequenceSource(0, records, splits=2), name="numbers").rebalance()
    numbers.flat_map(lambda n: [n] * copies, name="copies").rebalance().sink(CountingSink(), name="end")
    statistics = job.run(mode="acking", cost={"source_record": "10us"}).execution.acking
    assert statistics is not None
    return statistics.data, statistics.control["ack"]


def false_completions(trees: int) -> int:
    """Trees of a root and two children that the acker takes for complete before the last message."""
    acker, new_id, wrong = Acker(), IdStream("trees"), 0
    for _ in range(trees):
        root, edge, left, right = new_id(), new_id(), new_id(), new_id()
        first = acker.receive(Init(root, edge, "spout"))
        early = first or acker.receive(Ack(root, edge ^ left ^ right)) or acker.receive(Ack(root, left))
        wrong += early is not None or acker.receive(Ack(root, right)) is None
    return wrong


@target("V32", "what does it cost to know that a record is handled?", study=[acked, false_completions])
def acknowledgements(size: Size) -> Iterator[Figure]:
    """A tenth of the ten million trees of the target: each takes ten microseconds here."""
    tuples, acks = acked(size.of(200, 5_000), 3)
    yield Figure("acknowledgements per tuple", 1, acks / tuples, 0)
    trees = size.of(10_000, 1_000_000)
    yield Figure(f"{trees:,} trees: complete too early, or never", 0, false_completions(trees), 0)


def test_a_tree_is_complete_when_all_of_it_is() -> None:
    """Each tuple is acknowledged once; the exclusive or of random 64-bit ids is 0 before the end with probability
    2^-64: at 10,000 acknowledgements per second once in 58 million years (Apache Storm: Guaranteeing message
    processing, which says 50 million).
    """
    assert_plausible(acknowledgements)
