"""Properties that hold for any sequence of barriers, markers, records and ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.barriers import (
    BarrierHandler,
    BlockChannel,
    InputCapture,
    ResumeChannels,
    SingleCheckpointHandler,
)
from engine.elements.events import AlignmentType, CheckpointBarrier, CheckpointOptions
from tests.checkpoint.barriers.barrier_driver import EXACTLY_ONCE, MODES, UNALIGNED, replay
from tests.checkpoint.barriers.random_streams import TIMEOUT_MS, Operations, ahead_of, drain, names, streams
from tests.conformance.barrier.input_side import InputReplay

Run = tuple[InputReplay, Operations]

CHANNELS = st.integers(1, 4)

KINDS = {
    "aligned": ["aligned", "savepoint"],
    "at_least_once": ["at_least_once"],
    "unaligned": ["unaligned", "unaligned", "aligned"],
    "aligned_timeout": 3 * ["aligned_timeout"] + 2 * ["unaligned"] + ["savepoint"],
}


@st.composite
def runs(draw: st.DrawFn, modes: tuple[str, ...] = MODES, delivery: str = "eager") -> Run:
    """An input side after a random interleaving of random streams, and the elements it has seen."""
    mode, channels = draw(st.sampled_from(modes)), draw(CHANNELS)
    local = tuple(channel for channel in range(channels) if draw(st.integers(0, 3)) == 0)
    driver = replay(mode, channels, draw(st.booleans()), delivery=delivery, timeout_ms=TIMEOUT_MS, local_channels=local)
    left = draw(streams(KINDS[mode], channels, longest=12, one_ends_in=2))
    applied: Operations = []
    while any(left):
        applied.append(draw(st.sampled_from([operations for operations in left if operations])).pop(0))
        driver.apply(applied[-1])
        for operation in draw(interludes(delivery)):
            driver.apply(operation)
    if delivery == "manual":
        drain(driver)
    return driver, applied


@st.composite
def interludes(draw: st.DrawFn, delivery: str) -> Operations:
    """Between two arrivals time passes, and the task may be slow to read."""
    operations: Operations = []
    if draw(st.integers(0, 2)) == 0:
        kind = draw(st.sampled_from(["advance_ms", "advance_ms_passive"]))
        operations.append([kind, draw(st.integers(1, TIMEOUT_MS + 2))])
    if delivery == "manual":
        operations.append(["poll_announcements"])
        operations.append(["poll", draw(st.sampled_from([0, 0, 0, 0, 1, 1, 3]))])
    return operations


def cut(driver: InputReplay, checkpoint_id: int) -> list[Any]:
    """The records processed before the snapshot."""
    return driver.observed.output[: driver.observed.output.index(["ckpt", checkpoint_id])]


def assert_consistent(driver: InputReplay, operations: Operations) -> None:
    """The law of an exactly-once checkpoint, for each that was completed."""
    for checkpoint_id in driver.completed:
        for channel in range(len(driver.channels)):
            processed = names(cut(driver, checkpoint_id), channel)
            in_flight = names(driver.observed.inflight.get(checkpoint_id, []), channel)
            ahead = ahead_of(operations, channel, checkpoint_id)
            if channel in driver.local_channels:
                # The records that the barrier overtook were still with the sender: they are its output's channel state.
                ahead = ahead[: len(processed + in_flight)]
            assert processed + in_flight == ahead


@given(runs(EXACTLY_ONCE))
def test_a_completed_checkpoint_is_a_consistent_cut(run: Run) -> None:
    """Records before a barrier are what was processed before the snapshot, then the in-flight data: disjoint, in
    order, and nothing from behind the barrier."""
    assert_consistent(*run)


@given(runs(UNALIGNED, "manual"))
def test_a_busy_task_takes_consistent_cuts(run: Run) -> None:
    """The same while records wait in the channels, barriers time out there and overtake them."""
    assert_consistent(*run)


@given(runs(("at_least_once",)))
def test_at_least_once_misses_nothing(run: Run) -> None:
    """Records before a barrier were all processed before the snapshot; others may have been."""
    driver, operations = run
    for checkpoint_id in driver.completed:
        for channel in range(len(driver.channels)):
            ahead = ahead_of(operations, channel, checkpoint_id)
            assert names(cut(driver, checkpoint_id), channel)[: len(ahead)] == ahead


@given(st.one_of(runs(), runs(delivery="manual")))
def test_a_newer_checkpoint_frees_every_blocked_channel(run: Run) -> None:
    """No deadlock: one barrier of a newer id on each channel that can still send one sets everything free."""
    driver, operations = run
    handler = driver.handler
    assert driver.blocked <= set(handler.open_channels)
    assert not driver.blocked or driver.blocked != set(handler.open_channels)
    newest = 1 + max([0, *(one[2] for one in operations if one[0] in ("barrier", "cancel"))])
    ended = {one[1] for one in operations if one[0] == "eop"}
    alive = [channel for channel in handler.open_channels if channel not in ended]

    for channel in alive:
        driver.apply(["barrier", channel, newest])
    drain(driver)

    assert driver.blocked == set()
    assert driver.waiting == 0
    if alive:
        assert newest in (*driver.completed, *driver.observed.aborted)


@given(st.one_of(runs(EXACTLY_ONCE), runs(EXACTLY_ONCE, "manual")))
def test_snapshots_and_aborts_grow_and_no_id_ends_twice(run: Run) -> None:
    """Ids of snapshots grow strictly, so do those of aborts; no id is both complete and aborted or pending; nothing
    is complete or pending unless, in time, it was triggered."""
    driver, _ = run
    observed = driver.observed

    assert observed.triggered == sorted(set(observed.triggered))
    assert observed.aborted == sorted(set(observed.aborted))
    assert driver.completed == sorted(set(driver.completed))
    assert set(driver.completed) <= set(observed.triggered)
    assert not set(driver.completed) & {*observed.aborted, *observed.pending}
    assert not set(observed.aborted) & set(observed.pending)
    unaligned = {one for one, kind in observed.kinds.items() if kind == "unaligned"}
    assert set(observed.triggered) & set(observed.aborted) <= unaligned
    assert set(observed.inflight) == unaligned


@given(runs(("at_least_once",)))
def test_the_tracker_decides_each_id_at_most_once(run: Run) -> None:
    """No id is triggered twice, aborted twice, or both."""
    observed = run[0].observed

    assert len(set(observed.triggered)) == len(observed.triggered)
    assert len(set(observed.aborted)) == len(observed.aborted)
    assert not set(observed.triggered) & set(observed.aborted)


@given(runs(("at_least_once", "unaligned")))
def test_without_aligned_barriers_everything_is_consumed_at_once(run: Run) -> None:
    """At least once and unaligned: nothing waits unless a barrier came in aligned form."""
    driver, operations = run
    if all(one[-1].get("kind") != "aligned" for one in operations if one[0] == "barrier"):
        assert driver.waiting == 0
        assert driver.blocked == set()
        arrived = [one[2] for one in operations if one[0] == "rec"]
        assert arrived == [one for one in driver.observed.output if isinstance(one, str)]


@given(runs(("aligned_timeout",), "manual"))
def test_timers_that_are_over_are_harmless(run: Run) -> None:
    """The timer of a checkpoint that is not being aligned any more, or of any at all after ``close``, does nothing."""
    driver, _ = run
    handler = driver.handler
    for closing in (False, True):
        if closing:
            handler.close()
        for checkpoint_id in driver.armed:
            if checkpoint_id not in handler.pending_checkpoint_ids:
                before = handler.fingerprint()
                assert handler.on_timeout(checkpoint_id, driver.now_ns) == ()
                assert handler.fingerprint() == before
    assert handler.pending_checkpoint_ids == ()


@given(CHANNELS.flatmap(lambda count: st.permutations(range(count))), st.sampled_from(MODES))
def test_all_barriers_mean_one_snapshot(arrival: list[int], mode: str) -> None:
    """One barrier on each channel, in any order, takes one snapshot: at the first if unaligned, else at the last."""
    driver = replay(mode, len(arrival), timeout_ms=TIMEOUT_MS)
    for position, channel in enumerate(arrival):
        assert driver.observed.triggered == ([7] if mode == "unaligned" and position else [])
        driver.apply(["barrier", channel, 7])

    assert driver.observed.triggered == driver.completed == [7]
    assert driver.blocked == set()


@given(st.data())
def test_aligned_checkpoints_are_the_same_where_others_could_follow(data: st.DataObject) -> None:
    """Fed with aligned barriers only, a handler that could capture decides what one that cannot decides."""
    channels = data.draw(CHANNELS)
    pure = replay("aligned", channels)
    mixed = replay("aligned", channels, handler=lambda count, capture: SingleCheckpointHandler(count, capture=capture))
    left = data.draw(streams(KINDS["aligned"], channels, longest=12, one_ends_in=2))
    while any(left):
        operation = data.draw(st.sampled_from([operations for operations in left if operations])).pop(0)
        if operation[0] == "barrier":
            operation = [*operation[:3], {"kind": "aligned"}]
        pure.apply(operation)
        mixed.apply(operation)

    assert mixed.observed == pure.observed


@pytest.mark.parametrize("kinds", [(AlignmentType.ALIGNED,), (AlignmentType.ALIGNED, AlignmentType.UNALIGNED)])
def test_two_channels_with_independent_ids_never_dead_lock(kinds: tuple[AlignmentType, ...]) -> None:
    """Barriers with unrelated growing ids on two channels, for a long time: one of the channels can always be read."""
    handler: BarrierHandler = SingleCheckpointHandler(2)
    if len(kinds) > 1:
        handler = SingleCheckpointHandler(2, capture=InputCapture(2))
    random = Random(20)
    ids = [0, 0]
    blocked: set[int] = set()
    for now_ns in range(40_000):
        channel = random.choice([one for one in (0, 1) if one not in blocked])
        ids[channel] += random.randint(1, 3)
        options = CheckpointOptions(random.choice(kinds))
        for instruction in handler.on_barrier(channel, CheckpointBarrier(ids[channel], now_ns, options), now_ns):
            match instruction:
                case BlockChannel(one):
                    blocked.add(one)
                case ResumeChannels(many):
                    blocked.difference_update(many)
        handler.validate()
        assert len(blocked) < 2
        assert tuple(sorted(blocked)) == handler.blocked_channels
