"""V6: how many barriers and acknowledgements a checkpoint takes."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job, MessageCounter, RunResult
from engine.study import Arrivals, Trace
from tests.validation.targets import Figure, Size, assert_plausible, target


def counted(senders: int, receivers: int) -> tuple[MessageCounter, RunResult]:
    """Every sender to every receiver, and each receiver to one sink."""
    counter = MessageCounter()
    job = Job("messages")
    calls = job.source(Arrivals(Trace(["45ms"] * senders), splits=senders), name="calls", parallelism=senders)
    handled = calls.rebalance().map(lambda n: n, name="map", parallelism=receivers)
    handled.sink(CountingSink(), name="end", parallelism=receivers, chain=False)
    return counter, job.run(checkpoint_interval="10ms", latency=False, instruments=[counter])


@target("V6", "how many control messages has a checkpoint?", study=[counted])
def control_messages(size: Size) -> Iterator[Figure]:
    """At two sizes."""
    for senders, receivers in ((3, 5), (10, 20), (100, 200))[: size.of(2, 3)]:
        counter, result = counted(senders, receivers)
        acknowledged = result.checkpoints["acknowledged"]
        barriers = counter.control["barrier"] / len(acknowledged)
        case = f"{senders} x {receivers} channels, then {receivers}"
        yield Figure(f"{case}: barriers", senders * receivers + receivers, barriers, 0)
        yield Figure(f"{case}: acknowledgements", senders + 2 * receivers, sum(acknowledged) / len(acknowledged), 0)


def test_each_channel_carries_a_barrier_and_each_task_acknowledges() -> None:
    """Channels of all-to-all: p_u p_d; forward: p (P. Carbone et al.: Lightweight Asynchronous Snapshots, 2015)."""
    assert_plausible(control_messages)
