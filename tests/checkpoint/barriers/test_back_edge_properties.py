"""Properties of the head of a loop that hold for any sequence of barriers, markers, records and ends."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tests.checkpoint.barriers.loop_head import LoopHead
from tests.checkpoint.barriers.random_streams import TIMEOUT_MS, Operations, ahead_of, drain, names, streams

Run = tuple[LoopHead, Operations, tuple[int, ...]]
"""The input side, what it has seen, and which channels lead back."""

KINDS = {
    "exactly once": ["aligned_timeout", "aligned_timeout", "aligned", "aligned", "unaligned", "savepoint"],
    "at least once": ["at_least_once"],
}


@st.composite
def runs(draw: st.DrawFn, guarantee: str = "exactly once") -> Run:
    """A head that has seen a random interleaving of random streams, its records waiting or not."""
    channels = draw(st.integers(2, 4))
    back_edges = tuple(range(draw(st.integers(1, channels - 1)), channels))
    delivery = draw(st.sampled_from(["eager", "manual"]))
    driver = LoopHead(
        channels,
        back_edges,
        after_tasks_finish=draw(st.booleans()),
        delivery=delivery,
        timeout_ms=TIMEOUT_MS,
        at_least_once=guarantee == "at least once",
    )
    left = draw(streams(KINDS[guarantee], channels, longest=10, one_ends_in=4))
    applied: Operations = []
    while any(left):
        applied.append(draw(st.sampled_from([operations for operations in left if operations])).pop(0))
        driver.apply(applied[-1])
        if draw(st.integers(0, 3)) == 0:
            driver.apply([draw(st.sampled_from(["advance_ms", "advance_ms_passive"])), TIMEOUT_MS // 2 + 1])
        if delivery == "manual":
            driver.apply(["poll_announcements"])
            driver.apply(["poll", draw(st.sampled_from([0, 0, 0, 1, 1, 3]))])
    drain(driver)
    return driver, applied, back_edges


@given(runs())
def test_a_completed_checkpoint_is_a_consistent_cut(run: Run) -> None:
    """On every channel, also those that lead back, what was processed before the snapshot and then what was logged is
    what came ahead of the barrier: in order, nothing twice, nothing missing."""
    driver, operations, _ = run
    output = driver.observed.output
    for checkpoint_id in driver.completed:
        cut = output[: output.index(["ckpt", checkpoint_id])]
        for channel in range(len(driver.channels)):
            logged = names(driver.observed.inflight.get(checkpoint_id, []), channel)
            assert names(cut, channel) + logged == ahead_of(operations, channel, checkpoint_id)


@given(runs("at least once"))
def test_at_least_once_misses_nothing(run: Run) -> None:
    """What came ahead of a barrier was processed before the snapshot or is logged."""
    driver, operations, _ = run
    output = driver.observed.output
    for checkpoint_id in driver.completed:
        cut = output[: output.index(["ckpt", checkpoint_id])]
        for channel in range(len(driver.channels)):
            held = names(cut, channel) + names(driver.observed.inflight.get(checkpoint_id, []), channel)
            ahead = ahead_of(operations, channel, checkpoint_id)
            assert held[: len(ahead)] == ahead


@given(st.one_of(runs(), runs("at least once")))
def test_the_head_waits_for_no_barrier_that_it_must_send_first(run: Run) -> None:
    """Barriers of a new checkpoint on the forward channels are enough: the snapshot is taken, or the checkpoint given
    up, and nothing is blocked. Once they have gone round, nothing is pending either."""
    driver, operations, back_edges = run
    kind = {"kind": "at_least_once" if driver.is_at_least_once else "aligned"}
    newest = 1 + max([0, *(one[2] for one in operations if one[0] in ("barrier", "cancel"))])
    ended = {one[1] for one in operations if one[0] == "eop"}
    alive = [channel for channel in driver.handler.open_channels if channel not in ended]
    forward = [channel for channel in alive if channel not in back_edges]
    back = [channel for channel in alive if channel in back_edges]

    for channel in forward:
        driver.apply(["barrier", channel, newest, kind])
    drain(driver)
    # The barriers of an unaligned snapshot are on their way round; a channel whose own one came in aligned form waits.
    for checkpoint_id in driver.unaligned.intersection(driver.handler.pending_checkpoint_ids):
        for channel in back:
            if not any(one[:3] == ["barrier", channel, checkpoint_id] for one in operations):
                driver.apply(["barrier", channel, checkpoint_id, {"kind": "unaligned"}])
    drain(driver)

    decided = (*driver.observed.triggered, *driver.observed.aborted)
    if forward:
        assert newest in decided
        assert driver.blocked == set()
        assert driver.waiting == 0
        for channel in back:
            driver.apply(["barrier", channel, newest, kind])
        drain(driver)
        assert driver.handler.pending_checkpoint_ids == ()


@given(st.one_of(runs(), runs("at least once")))
def test_no_id_ends_twice(run: Run) -> None:
    """Snapshots grow, and so do aborts; nothing is both complete and aborted, or complete and not triggered."""
    driver, _, _ = run
    observed = driver.observed

    assert observed.triggered == sorted(set(observed.triggered))
    assert len(observed.aborted) == len(set(observed.aborted))
    assert len(driver.completed) == len(set(driver.completed))
    assert set(driver.completed) <= set(observed.triggered)
    assert not set(driver.completed) & {*observed.aborted, *observed.pending}
