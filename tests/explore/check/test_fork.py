"""Copies of a running case go on alike, and nothing that happens to one shows in another."""

from __future__ import annotations

import gc
import weakref

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.check.fork import Forker, collect, forking
from engine.explore.check.machine import CaseState, Machine
from tests.explore.check.jobs import calm_case, counting, windowed


def _step(machine: Machine, state: CaseState, turns: int) -> bool:
    """Execute one of the events whose turn it could be; returns whether there was one."""
    alternatives = machine.alternatives(state)
    if alternatives:
        machine.execute(state, alternatives[turns % len(alternatives)][0])
    return bool(alternatives)


def _to_end(machine: Machine, state: CaseState) -> list[bytes]:
    seen, turns = [], 0
    while _step(machine, state, turns):
        seen.append(machine.fingerprint(state))
        turns += 7
    assert state.is_over
    return seen


@pytest.mark.parametrize("state_backend", ["heap", "lsm", "changelog"])
def test_copies_go_on_alike_and_apart(state_backend: str) -> None:
    """Copies in the middle of a checkpoint give the same fingerprints to the end, and the original stays."""
    machine = Machine(counting(3, 3), calm_case(1, state_backend=state_backend))
    with forking():
        state = machine.start()
        turns = 0
        while not state.execution.manager.coordinator.pending.ids or turns < 120:
            assert _step(machine, state, turns)
            turns += 3
        copy = machine.copy_of(state)
        before = machine.fingerprint(state)
        first, second = (_to_end(machine, machine.state_of(copy)) for _ in range(2))
        assert first == second
        assert len(set(first)) > 10
        assert machine.fingerprint(state) == before
        assert _to_end(machine, state) == first
    machine.close()


def test_windows_of_copies_are_apart() -> None:
    """A record that a copy adds to a window is not in any window of the original."""
    machine = Machine(windowed(), calm_case())
    ends = []
    with forking():
        state = machine.start()
        for turns in range(4):
            assert _step(machine, state, turns)
            copy = machine.state_of(machine.copy_of(state))
            _to_end(machine, copy)
            ends.append(copy.world.committed())
        _to_end(machine, state)
    assert [*ends, state.world.committed()] == [{"out": ["1", "5"]}] * 5
    machine.close()


def test_a_copy_has_a_world_of_its_own() -> None:
    """One copy's commits and writes are not in the other's sinks, files and plan."""
    machine = Machine(counting(1, 1), calm_case())
    with forking():
        state = machine.start()
        copy = machine.copy_of(state)
        one, other = machine.state_of(copy), machine.state_of(copy)
        _to_end(machine, one)
    assert one.world.committed() == {"out": ["('a', 1)", "('a', 2)"]}
    assert other.world.committed() == {"out": []}
    assert one.world.checkpoints is not other.world.checkpoints
    assert not other.world.checkpoints.exists("/checkpoints/counting/chk-1")
    for each in (one, other):
        operator = each.execution.manager.plan.vertices[-1].operators[0]
        assert getattr(operator.factory, "__self__", None) is each.world.sinks["out"]
    machine.close()


def test_what_is_shared_is_the_same_object() -> None:
    """Shared objects and errors are the same in every copy, values are when they are equal; all else is copied."""
    named, listed = object(), [1]
    error = ConfigurationError("no")
    forker = Forker(values=(complex,))
    forker.share(named)
    state = {"named": named, "list": listed, "function": _step, "error": error, "number": complex(1, 2)}
    copy, other = forker.load(forker.dump(state)), forker.load(forker.dump({"number": complex(1, 2)}))
    assert copy["named"] is named
    assert copy["error"] is error
    assert copy["function"] is _step
    assert copy["number"] is other["number"]
    assert copy["list"] == listed
    assert copy["list"] is not listed
    forker.close()


def test_a_state_may_change_between_its_copies() -> None:
    """All copies begin with what they share: nothing of the first state that was copied is in that."""
    forker, state = Forker(), {"list": [1], "name": "one"}
    first = forker.dump(state)
    state["list"].append(2)  # type: ignore[attr-defined]
    assert forker.load(forker.dump(state)) == {"list": [1, 2], "name": "one"}
    assert forker.load(first) == {"list": [1], "name": "one"}
    assert forker.load(first)["list"] is not forker.load(first)["list"]
    forker.close()


def test_a_state_that_is_nested_too_deep_is_refused() -> None:
    """Copying goes down from object to object: if that is deeper than the stack, the error says what to do."""
    state: list[object] = []
    for _ in range(100_000):
        state = [state]
    with forking(), pytest.raises(ConfigurationError, match=r"too large to be checked.*\n  fix: check a"):
        Forker().dump(state)


class _Cycle:
    def __init__(self) -> None:
        self.myself = self


def test_abandoned_states_are_freed_and_kept_ones_never_walked() -> None:
    """A collection frees an abandoned cycle and does not visit again the objects that stay."""
    with forking():
        kept = [["kept"]]
        watched = weakref.ref(_Cycle())
        assert watched() is not None
        collect()
        assert watched() is None
        assert not any(one is kept for one in gc.get_objects())
    assert any(one is kept for one in gc.get_objects())
