"""Floating credit: lent to channels that are full, given back when they need it no more."""

from __future__ import annotations

from typing import Any

import pytest

from engine import ConfigurationError, CountingSink, Job, SequenceSource
from engine.elements.batch import Batch
from engine.runtime.channels import FloatingCredit
from tests.runtime.channels.links import Link


def batch(records: int) -> Batch:
    """So many records."""
    return Batch(list(range(records)))


def test_a_full_channel_borrows_and_gives_back() -> None:
    """It is full only when nothing is left to lend; what it does not need goes to the other one."""
    one, other = Link(capacity=2), Link(capacity=2)
    channels = [one.channel, other.channel]
    pool = FloatingCredit(3, channels)
    for _ in range(4):
        one.put(batch(1))
    assert (one.channel.full, one.channel.borrowed, pool.left) == (False, 3, 0)
    one.put(batch(1))
    other.put(batch(1), batch(1))
    assert (one.channel.full, other.channel.full) == (True, True)
    for expected in ((False, 3, True), (False, 2, False), (False, 1, False)):
        one.channel.take()
        assert (one.channel.full, one.channel.borrowed, other.channel.full) == expected
        assert pool.left + sum(channel.borrowed for channel in channels) == 3
        one.channel.validate()
        other.channel.validate()


def test_channels_that_fill_later_get_what_comes_back() -> None:
    """Also when none was full the last time, and when one before them took all there was."""
    giver, second, third = links = [Link(capacity=2), Link(capacity=2), Link(capacity=2)]
    FloatingCredit(3, [link.channel for link in links])
    giver.put(*[batch(1) for _ in range(4)])
    giver.channel.take()
    assert (giver.channel.borrowed, second.channel.full, third.channel.full) == (2, False, False)
    second.put(*[batch(1) for _ in range(3)])
    third.put(*[batch(1) for _ in range(2)])
    assert (second.channel.full, third.channel.full) == (True, True)
    giver.channel.take()
    assert (second.channel.full, third.channel.full) == (False, True)
    giver.channel.take()
    assert (second.channel.full, third.channel.full) == (False, False)


@pytest.mark.parametrize("floating", [0, 8])
def test_a_gate_holds_its_own_buffers_and_the_floating_ones(floating: int) -> None:
    """A barrier waits for 2 records of each channel, and for those that were lent."""
    job = Job("gate")
    source = SequenceSource(0, 400, splits=5)
    job.source(source, name="from", parallelism=5).rebalance().sink(CountingSink(), name="to", parallelism=1)
    settings: dict[str, Any] = {"batch_size": 1, "channel_capacity": 2, "floating_credit": floating}
    result = job.run(checkpoint_interval="200ms", cost={"source_record": "0s", "record": "1ms"}, **settings)
    # At the instant of the trigger a record may have been taken, or not yet.
    assert abs(result.checkpoints["end_to_end_ns"][0] - (10 + floating) * 1_000_000) <= 1_000_000


def test_debloating_and_floating_credit_exclude_each_other() -> None:
    """Both would set the credit of a channel."""
    job = Job("both")
    job.source(SequenceSource(0, 10), name="from").sink(CountingSink(), name="to")
    with pytest.raises(ConfigurationError, match="floating_credit is 8, but debloating sets the credit"):
        job.run(floating_credit=8, debloat_target="1s")
