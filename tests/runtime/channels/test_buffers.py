"""Channels that hold buffers: credit counted in the bytes of records, with buffers that a task lends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest

from engine import CollectionSource, CountedRecords, CountingSink, Job, RunResult
from engine.elements.batch import Batch
from engine.runtime.channels import FloatingCredit
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.faulted import DROPPED
from engine.runtime.faulted.run_faults import LinkFaults
from engine.runtime.kernel import START_NS
from tests.runtime.acking.acked_jobs import acking_config, at_once, expected, pipeline, run_acked
from tests.runtime.channels.gates import Receiver
from tests.runtime.channels.links import Link, unaligned
from tests.runtime.support import US, every
from tests.scenarios.random.loop_jobs import Kill, loop_job

TEXTS = CostModel(record_bytes=len)


class Dropping:
    """No element arrives."""

    def element_delay_ns(self, channel: str, kind: str) -> int:
        return DROPPED

    def wait(self, _payload: None) -> None:
        """Time passes."""


def texts(*sizes: int) -> Batch:
    """One record of each size."""
    return Batch(["x" * size for size in sizes])


def test_credit_is_lent_and_given_back_in_whole_buffers() -> None:
    """A channel that lacks one byte borrows a buffer, and keeps it until it has room without it."""
    link = Link(cost=TEXTS, capacity=200, weigh=TEXTS.bytes_of)
    channel, pool = link.channel, FloatingCredit(200, [link.channel], 100)
    link.put(texts(120), texts(80))
    assert (channel.occupied, channel.borrowed, channel.full, pool.left) == (200, 100, False, 100)
    link.put(texts(170))
    assert (channel.occupied, channel.borrowed, channel.full, pool.left) == (370, 200, False, 0)
    link.put(texts(30))
    assert (channel.occupied, channel.full) == (400, True)
    channel.take()
    # 280 bytes: with one buffer less it would be below its capacity of 300.
    assert (channel.occupied, channel.borrowed, channel.full, pool.left) == (280, 100, False, 100)
    channel.take()
    # 200 bytes: without the other one it would be full.
    assert (channel.occupied, channel.borrowed, pool.left) == (200, 100, 100)
    channel.take()
    assert (channel.occupied, channel.borrowed, pool.left) == (30, 0, 200)
    channel.validate()


def test_a_record_that_a_barrier_overtakes_on_its_way_gives_its_credit_back() -> None:
    """Those of the batch under transfer that have not passed yet go on waiting at the sender."""
    cost = CostModel(record_bytes=len, link_bytes_per_s=1_000_000_000)
    link = Link(cost=cost, capacity=100, weigh=cost.bytes_of)
    link.put(texts(100, 20, 7))
    link.kernel.schedule(START_NS + 119, "wait", Dropping())
    link.kernel.run(1)
    link.put(unaligned(1))
    assert (link.channel.incoming, link.channel.occupied) == (100, 127)
    assert [len(text) for text in link.outputs(1)] == [20, 7]
    link.channel.validate()


def test_an_element_that_never_arrives_gives_its_credit_back() -> None:
    """It is off the channel with all its bytes."""
    link = Link(cost=TEXTS, capacity=50, weigh=TEXTS.bytes_of)
    link.channel.hook, link.channel._at_once = LinkFaults(link.channel, link.kernel, Dropping()), False  # type: ignore[arg-type]
    link.put(texts(60, 7))
    assert (link.channel.incoming, link.channel.occupied, link.sender.full_outputs) == (0, 0, 0)
    link.channel.validate()


def stuck(parallelism: int, buffers: tuple[int, int], count: int, size: Callable[[Any], int] | int) -> RunResult:
    """Slow sinks, and an unaligned checkpoint of what is in front of them."""
    job, (exclusive, floating) = Job("stuck", parallelism=parallelism), buffers
    records = CollectionSource(list(repeat("", count)), splits=parallelism)
    job.source(records, name="from").rebalance().sink(CountingSink(), name="slow")
    return job.run(
        mode="unaligned", batch_size=parallelism, segment_bytes="1kb", exclusive_buffers=exclusive,
        floating_buffers=floating, checkpoint_interval="900ms",
        cost={"source_record": "0s", "record": "1s", "record_bytes": size},
    )  # fmt: skip


@pytest.mark.parametrize(("parallelism", "exclusive", "floating"), [(1, 1, 0), (2, 2, 8), (3, 4, 5)])
def test_a_saturated_edge_holds_all_buffers_to_the_last_byte(parallelism: int, exclusive: int, floating: int) -> None:
    """p (p exclusive + floating) buffers, but for the record that each receiver has in service."""
    bound = parallelism * (parallelism * exclusive + floating) * 1_024
    for size in (256, 1024):
        # One sender may borrow all that its receivers lend.
        records = parallelism**2 * ((exclusive + floating) * 1_024 // size + 2)
        by_number, by_function = (
            stuck(parallelism, (exclusive, floating), records, size_of) for size_of in (size, lambda _, size=size: size)
        )
        assert by_number.checkpoints["persisted_bytes"][0] == bound - parallelism * size
        assert list(by_function.checkpoints) == list(by_number.checkpoints)


def test_records_of_any_size_overshoot_by_less_than_one_record() -> None:
    """A record is sent while there is room for a byte; then its channel may hold more than its buffers."""
    job, count = Job("sizes", parallelism=2), CountedRecords()
    job.source(CollectionSource(range(400), splits=2), name="from").rebalance().sink(CountingSink(count), name="to")
    config = RunConfig(
        batch_size=1, segment_bytes=1_000, exclusive_buffers=1, floating_buffers=1,
        cost=CostModel(source_record_ns=100, record_ns=3_000, record_bytes=lambda number: number * 37 % 700 + 1),
    )  # fmt: skip
    execution = Execution(job.plan(), config)
    channels = 0

    def look(_: object) -> None:
        nonlocal channels
        for task in execution.manager.tasks.values():
            task.validate()
            assert sum(channel.borrowed for channel in task.inputs) in (0, 1_000)
            for channel in task.inputs:
                assert channel.occupied < channel.capacity + 700
                channels += channel.occupied > 2_000

    execution.run(look, 1).raise_on_failure()
    assert count.total == 400
    assert channels, "no channel was full"


@pytest.mark.parametrize(("in_bytes", "held"), [(True, 2), (False, 1)])
def test_a_loop_takes_nothing_new_while_it_holds_a_channel_full(in_bytes: bool, held: int) -> None:
    """In bytes or in records: what comes back goes first as soon as it would fill the channel of what is new."""
    capacity = 100 if in_bytes else held
    for back, first in ((held - 1, "new"), (held, "back")):
        task = Receiver(2, capacity=capacity, weigh=TEXTS.bytes_of if in_bytes else None, back_edges=[1])
        task.senders[0].put(Batch(["new"]))
        task.senders[1].put(*(Batch(["back" * 15]) for _ in range(back)))
        assert task.read()[0][:4] == first


def test_records_that_are_lost_give_their_buffers_back() -> None:
    """Whether tasks die, elements get lost with them, or records go round: the bytes of each channel add up."""
    settings: dict[str, Any] = {"segment_bytes": 64, "batch_size": 2}
    cost = CostModel(link_latency_ns=US, link_bytes_per_s=50_000_000, record_bytes=lambda number: number % 5 + 1)
    results = at_once()
    kills = [("tens[0]", 7 * US), ("ones[1]", 9 * US), ("sink", 14 * US)]
    run_acked(pipeline(results, 60), acking_config(cost=cost, **settings), kills)
    assert set(results.records) == set(expected(60))

    made = loop_job("keyed", tokens=20, head=2, body=2)
    cost = CostModel(record_ns=2 * US, link_latency_ns=700, record_bytes=lambda record: len(repr(record)))
    config = RunConfig(mode="unaligned", checkpoint_interval=every(ns=20 * US), cost=cost, **settings)
    made.run(config, [Kill("trip[1]", 2, 5 * US)])
    assert made.output == made.expected
