"""The bandwidth that the channels of a host share: how long records take, and what does not overtake them."""

from __future__ import annotations

from typing import Any

import pytest

from engine import CountingSink, Job, SequenceSource
from engine.runtime.channels import HostLink
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS
from tests.runtime.channels.links import Link, records, unaligned

COST = CostModel(record_bytes=100, host_bytes_per_s=100_000_000)
"""1 µs per record."""
MB_PER_S = 1_000_000


def makespan_ns(sources: int, subtasks: int, cost: dict[str, Any], **settings: Any) -> int:
    """Of 4,000 records of 100 bytes, in equal parts from every subtask of each source to each of four subtasks."""
    job = Job("spread")
    first, *others = (
        job.source(SequenceSource(0, 4_000 // sources, splits=subtasks), name=f"numbers {number}", parallelism=subtasks)
        for number in range(sources)
    )
    numbers = first.union(*others) if others else first
    numbers.rebalance().sink(CountingSink(), parallelism=4)
    settings = {"mode": "none", "batch_size": 100, **settings}
    return job.run(cost={"source_record": "0s", "record_bytes": 100, **cost}, **settings).makespan_ns


@pytest.mark.parametrize(
    ("sources", "subtasks", "cost", "milliseconds"),
    [
        # Three of four records leave the only host.
        (1, 1, {"host_bytes_per_s": MB_PER_S}, 300),
        # Two vertices on one host share its link, two subtasks of one vertex are on two hosts.
        (2, 1, {"host_bytes_per_s": MB_PER_S}, 300),
        (1, 2, {"host_bytes_per_s": MB_PER_S}, 150),
        # Each channel by itself; the slower one of both decides.
        (1, 1, {"link_bytes_per_s": MB_PER_S}, 100),
        (1, 1, {"link_bytes_per_s": MB_PER_S, "host_bytes_per_s": 4 * MB_PER_S}, 100),
        (1, 1, {"link_bytes_per_s": MB_PER_S, "host_bytes_per_s": 2 * MB_PER_S}, 150),
    ],
)
def test_the_makespan_is_bytes_over_bandwidth(
    sources: int, subtasks: int, cost: dict[str, Any], milliseconds: int
) -> None:
    """Of the bytes that leave the busiest host."""
    assert makespan_ns(sources, subtasks, cost) == milliseconds * 1_000_000


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_checkpoints_take_no_bandwidth(mode: str) -> None:
    """A barrier has no length. It also returns no bandwidth that records have taken."""
    cost = {"host_bytes_per_s": MB_PER_S}
    assert makespan_ns(1, 1, cost, mode=mode, checkpoint_interval="20ms", channel_capacity=200) >= 300_000_000


def test_a_barrier_overtakes_what_has_not_left_its_channel() -> None:
    """The batch that passes the link, or waits for it, comes before the barrier and is whole; the next one is state."""
    host_link = HostLink(COST)
    assert host_link.pass_ns(START_NS, 500) == START_NS + 5_000
    link = Link(cost=COST, host_link=host_link)
    link.put(records(1, 2, 3), records(4))
    link.put(unaligned(1))
    assert link.arrived == []
    assert link.outputs(1) == [4]
    link.kernel.run()

    assert link.arrived == [unaligned(1), 1, 2, 3, 4]
    assert link.kernel.now_ns == START_NS + 9_000
    link.channel.validate()


def test_the_state_of_a_channel_tells_how_long_its_host_is_busy() -> None:
    """Two states that look the same otherwise go on differently."""
    first, second = (Link(cost=COST, host_link=HostLink(COST)) for _ in range(2))
    assert first.channel.fingerprint() == second.channel.fingerprint()
    assert second.channel.host_link is not None
    second.channel.host_link.pass_ns(START_NS, 1)
    assert first.channel.fingerprint() != second.channel.fingerprint()
