"""The kernel runs data events in virtual time: in order, one at a time, and only as far as it is told."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.runtime.kernel import START_NS, Choice, ChoiceRecorder, Kernel

Heard = list[tuple[int, str, Any]]
"""``(ns since the start, target, payload)``"""


class Recorder:
    """A target that records its calls and their times."""

    def __init__(self, kernel: Kernel, name: str, log: Heard) -> None:
        self.name = name
        self._kernel = kernel
        self._log = log

    def hear(self, payload: object) -> None:
        self._log.append((self._kernel.now_ns - START_NS, self.name, payload))

    def stop(self, _payload: object) -> None:
        self.hear("stop")
        self._kernel.stop()

    def pass_on(self, to: Recorder) -> None:
        """Write down and call another target at the same instant."""
        self.hear("pass on")
        self._kernel.schedule(self._kernel.now_ns, "hear", to, "passed on")

    def fail(self, _payload: object) -> None:
        raise ValueError("event failed")


EVENTS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), max_size=30)


def kernel_with(
    events: list[tuple[int, str]], choices: ChoiceRecorder | None = None
) -> tuple[Kernel, dict[str, Recorder], Heard]:
    """A kernel with ``(delay, target)`` events, each carrying its number."""
    log: Heard = []
    kernel = Kernel(choices=choices)
    targets = {name: Recorder(kernel, name, log) for name in "abc"}
    for number, (delay, name) in enumerate(events):
        kernel.schedule(START_NS + delay, "hear", targets[name], number)
    return kernel, targets, log


@given(EVENTS)
def test_events_run_by_time_then_in_the_order_they_were_scheduled(events: list[tuple[int, str]]) -> None:
    """Without choices an instant is served first come, first served."""
    kernel, _, log = kernel_with(events)

    executed = kernel.run()

    numbered = [(delay, name, number) for number, (delay, name) in enumerate(events)]
    assert log == sorted(numbered, key=lambda event: event[0])
    assert executed == kernel.executed == len(events)


@given(EVENTS, st.integers(0, 1000))
def test_a_seed_never_reorders_time_or_the_events_of_one_target(events: list[tuple[int, str]], seed: int) -> None:
    """Choices only decide which target is next within an instant; nothing is lost or repeated."""
    kernel, _, log = kernel_with(events, ChoiceRecorder(str(seed)))

    kernel.run()

    assert sorted(number for _, _, number in log) == list(range(len(events)))
    assert [time for time, _, _ in log] == sorted(delay for delay, _ in events)
    by_target: dict[tuple[int, str], list[int]] = defaultdict(list)
    for time, name, number in log:
        by_target[time, name].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_target.values())


def test_seeds_do_reorder_targets() -> None:
    """Different seeds give different orders of targets within an instant; one seed always the same."""

    def order(seed: int) -> str:
        kernel, _, log = kernel_with([(0, "a"), (0, "b"), (0, "c")], ChoiceRecorder(str(seed)))
        kernel.run()
        return "".join(name for _, name, _ in log)

    orders = {order(seed) for seed in range(50)}

    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert all(order(seed) == order(seed) for seed in range(5))


def test_an_event_may_schedule_another_at_its_own_instant() -> None:
    """An event that is scheduled for now runs in this instant, after those that were ready before."""
    kernel, targets, log = kernel_with([])
    kernel.schedule(START_NS + 1, "pass_on", targets["a"], targets["b"])
    kernel.schedule(START_NS + 1, "hear", targets["c"], "ready before")

    kernel.run()

    assert log == [(1, "a", "pass on"), (1, "c", "ready before"), (1, "b", "passed on")]


def test_a_single_ready_event_is_no_choice() -> None:
    """Where only one event can be next, the kernel draws nothing, so recordings hold only decisions."""
    choices = ChoiceRecorder("0")
    kernel, _, log = kernel_with([(0, "a"), (1, "b"), (2, "c")], choices)

    kernel.run()

    assert len(log) == 3
    assert choices.log == []


def test_events_may_be_carried_out_one_by_one() -> None:
    """The alternatives are the first ready events of all targets; the same choices make the same run."""
    events = [(0, "a"), (0, "b"), (0, "a"), (0, "c"), (3, "b"), (3, "a")]
    kernel, _, log = kernel_with(events, ChoiceRecorder("0"))
    draws: list[Choice] = []
    while len(log) < len(events):
        found = kernel.alternatives()
        assert len({event.target.name for _, event in found}) == len(found)
        assert [kernel.event_at(position) for position, _ in found] == [event for _, event in found]
        position, event = found[-1]
        if kernel.ready_events > 1:
            draws.append(Choice("schedule", position, kernel.ready_events))
        assert kernel.operations() == {"hear"}
        kernel.execute(position)
        assert log[-1][1:] == (event.target.name, event.payload)
    assert kernel.alternatives() == []
    assert kernel.executed == len(events)
    assert [number for _, _, number in log] == [3, 1, 0, 2, 5, 4]

    again, _, replayed = kernel_with(events, ChoiceRecorder("0", replay=draws))
    again.run()
    assert replayed == log


def test_the_past_cannot_be_scheduled() -> None:
    """An event before now is a bug, caught where it is made."""
    kernel, targets, _ = kernel_with([(5, "a")])
    kernel.run()

    with pytest.raises(AssertionError, match="1 ns in the past"):
        kernel.schedule(START_NS + 4, "hear", targets["a"])


def test_stop_ends_after_the_current_event() -> None:
    """``stop`` finishes the event that called it; the other events stay pending and a new run goes on with them."""
    kernel, targets, log = kernel_with([])
    kernel.schedule(START_NS, "stop", targets["a"])
    kernel.schedule(START_NS, "hear", targets["b"], "later")

    assert kernel.run() == 1
    assert kernel.stopped
    assert [event.operation for event in kernel.pending()] == ["hear"]
    assert kernel.run() == 1
    assert not kernel.stopped
    assert log == [(0, "a", "stop"), (0, "b", "later")]


@given(EVENTS, st.integers(1, 7))
def test_a_run_in_pieces_is_the_same_run(events: list[tuple[int, str]], piece: int) -> None:
    """``max_events`` cuts a run anywhere without changing it."""
    whole, _, expected = kernel_with(events, ChoiceRecorder("7"))
    pieces, _, log = kernel_with(events, ChoiceRecorder("7"))

    whole.run()
    while pieces.run(piece) == piece:
        pass

    assert log == expected
    assert pieces.executed == len(events)


def test_an_event_that_raises_is_counted_and_the_error_comes_out() -> None:
    """The kernel hides no error, and the event counts as executed."""
    kernel, targets, log = kernel_with([(1, "b")])
    kernel.schedule(START_NS, "fail", targets["a"])

    with pytest.raises(ValueError, match="event failed"):
        kernel.run()

    assert kernel.executed == 1
    assert log == []
    assert kernel.run() == 1


def test_pending_lists_what_is_to_come_in_order() -> None:
    """Pending events are shown by time, then by order of scheduling, with their payload."""
    kernel, _, _ = kernel_with([(3, "a"), (0, "b"), (3, "c")])

    shown = [(event.time_ns - START_NS, event.target.name, event.payload) for event in kernel.pending()]

    assert shown == [(0, "b", 1), (3, "a", 0), (3, "c", 2)]


def test_fingerprint_is_relative_to_now() -> None:
    """Two kernels that will do the same after the same delays have one fingerprint, whatever their current times."""
    early, targets, _ = kernel_with([(2, "a")])
    late = Kernel(START_NS + 1_000)
    late.schedule(START_NS + 1_002, "hear", targets["a"], "other payload")
    other = Kernel()
    other.schedule(START_NS + 3, "hear", targets["a"])

    assert early.fingerprint() == late.fingerprint()
    assert early.fingerprint() != other.fingerprint()


def test_time_begins_far_from_zero() -> None:
    """"Never" can be an early time, and ms and ns clocks agree at the start."""
    assert START_NS % 1_000_000 == 0
    assert START_NS > 10**15
    assert Kernel().now_ns == START_NS
