"""What must hold for any sequence of barriers, markers, records and ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.barrier_driver import HANDLERS, BarrierDriver

CHANNELS = st.integers(1, 4)


@st.composite
def streams(draw: st.DrawFn, channels: int) -> list[list[Any]]:
    """Operations in arrival order: on each channel ids grow, and nothing follows its end."""
    per_channel: list[list[list[Any]]] = []
    for channel in range(channels):
        operations: list[list[Any]] = []
        checkpoint_id = 0
        for index in range(draw(st.integers(0, 12))):
            kind = draw(st.sampled_from(["rec", "rec", "barrier", "barrier", "cancel"]))
            if kind == "rec":
                operations.append(["rec", channel, f"{channel}.{index}", {"bytes": 1}])
            else:
                checkpoint_id += draw(st.integers(1, 2))
                operations.append([kind, channel, checkpoint_id])
        if draw(st.booleans()):
            operations.append(["eop", channel])
        per_channel.append(operations)
    interleaved: list[list[Any]] = []
    while left := [operations for operations in per_channel if operations]:
        interleaved.append(draw(st.sampled_from(left)).pop(0))
        if draw(st.integers(0, 9)) == 0:
            interleaved.append(["advance_ms", draw(st.integers(1, 5))])
    return interleaved


@st.composite
def runs(draw: st.DrawFn, mode: str) -> tuple[BarrierDriver, list[list[Any]]]:
    """A driver that has consumed a random stream, and the stream."""
    channels = draw(CHANNELS)
    driver = BarrierDriver(mode, channels, draw(st.booleans()))
    operations = draw(streams(channels))
    for operation in operations:
        driver.apply(operation)
    return driver, operations


def position_of_barriers(operations: list[list[Any]]) -> dict[tuple[int, int], list[str]]:
    """(channel, id) -> records of that channel behind the barrier."""
    behind: dict[tuple[int, int], list[str]] = {}
    for operation in operations:
        if operation[0] == "barrier":
            behind[operation[1], operation[2]] = []
        elif operation[0] == "rec":
            for (channel, _), records in behind.items():
                if channel == operation[1]:
                    records.append(operation[2])
    return behind


@given(runs("aligned"))
def test_no_record_behind_a_barrier_is_in_its_snapshot(run: tuple[BarrierDriver, list[list[Any]]]) -> None:
    """Whatever the interleaving, a record behind barrier n of its channel is processed after snapshot n."""
    driver, operations = run
    for (_, checkpoint_id), records in position_of_barriers(operations).items():
        if checkpoint_id in driver.triggered:
            cut = driver.output.index(["ckpt", checkpoint_id])
            assert not set(records) & {one for one in driver.output[:cut] if isinstance(one, str)}


@given(runs("aligned"))
def test_records_before_a_barrier_are_in_its_snapshot(run: tuple[BarrierDriver, list[list[Any]]]) -> None:
    """A record ahead of barrier n of its channel is processed before snapshot n."""
    driver, operations = run
    ahead: dict[int, list[str]] = {}
    for operation in operations:
        if operation[0] == "rec":
            ahead.setdefault(operation[1], []).append(operation[2])
        elif operation[0] == "barrier" and operation[2] in driver.triggered:
            cut = driver.output.index(["ckpt", operation[2]])
            assert set(ahead.get(operation[1], ())) <= {
                one for one in driver.output[:cut] if isinstance(one, str)
            }


@given(runs("aligned"))
def test_a_newer_checkpoint_frees_every_blocked_channel(run: tuple[BarrierDriver, list[list[Any]]]) -> None:
    """No deadlock: one barrier of a newer id on each channel that can still send one sets everything free."""
    driver, operations = run
    handler = driver.handler
    assert set(driver.blocked) <= set(handler.open_channels)
    assert not driver.blocked or set(driver.blocked) != set(handler.open_channels)
    newest = 1 + max(
        [0, *(operation[2] for operation in operations if operation[0] in ("barrier", "cancel"))]
    )
    ended = {operation[1] for operation in operations if operation[0] == "eop"}
    alive = [channel for channel in handler.open_channels if channel not in ended]

    for channel in alive:
        driver.apply(["barrier", channel, newest])

    assert driver.blocked == set()
    assert driver.waiting() == 0
    if alive:
        assert newest in (*driver.triggered, *driver.aborted)
        assert newest in driver.triggered or not driver.after_tasks_finish


@given(runs("at_least_once"))
def test_the_tracker_consumes_everything_at_once(run: tuple[BarrierDriver, list[list[Any]]]) -> None:
    """At least once: nothing waits, no channel is ever blocked, records keep their order of arrival."""
    driver, operations = run

    assert driver.waiting() == 0
    assert driver.blocked == set()
    arrived = [operation[2] for operation in operations if operation[0] == "rec"]
    assert arrived == [one for one in driver.output if isinstance(one, str)]


@given(runs("aligned"))
def test_snapshots_and_aborts_are_exclusive_and_grow(run: tuple[BarrierDriver, list[list[Any]]]) -> None:
    """Ids of snapshots grow strictly, so do those of aborts, and no id has both."""
    driver, _ = run

    assert driver.triggered == sorted(set(driver.triggered))
    assert driver.aborted == sorted(set(driver.aborted))
    assert not set(driver.triggered) & set(driver.aborted)
    assert not set(driver.handler.pending_checkpoint_ids) & {*driver.triggered, *driver.aborted}


@given(runs("at_least_once"))
def test_the_tracker_decides_each_id_at_most_once(run: tuple[BarrierDriver, list[list[Any]]]) -> None:
    """No id is triggered twice, aborted twice, or both."""
    driver, _ = run

    assert len(set(driver.triggered)) == len(driver.triggered)
    assert len(set(driver.aborted)) == len(driver.aborted)
    assert not set(driver.triggered) & set(driver.aborted)


@given(CHANNELS.flatmap(lambda count: st.permutations(range(count))), st.sampled_from(sorted(HANDLERS)))
def test_all_barriers_mean_one_snapshot(arrival: list[int], mode: str) -> None:
    """One barrier on each channel, in any order, takes exactly one snapshot at the last of them."""
    driver = BarrierDriver(mode, len(arrival))
    for channel in arrival[:-1]:
        driver.apply(["barrier", channel, 7])
    assert driver.triggered == []

    driver.apply(["barrier", arrival[-1], 7])

    assert driver.triggered == [7]
    assert driver.blocked == set()
