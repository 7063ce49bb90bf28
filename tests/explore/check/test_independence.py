"""Which events may be taken alone, and which not. The tests of the search show that no ending is lost by it."""

from __future__ import annotations

import pytest

from engine.explore.check.independence import Independence
from engine.explore.check.machine import CaseState, Machine
from tests.explore.check.jobs import calm_case, counting, straight

DRAINED = ("count[1]", "out[0]", "count[1]", "out[0]")
"""The second subtask reads what it has, the sink too, and both find nothing more."""


def _state(machine: Machine, *names: str) -> CaseState:
    """The state after the next events of these actors, and after all events for which no actor is awake."""
    state = machine.start()
    for name in ("count[0]", "count[1]", "out[0]", *names):
        position = next(
            (at for at, event in machine.alternatives(state) if getattr(event.target, "name", "") == name), None
        )
        if position is not None:
            machine.execute(state, position)
    return state


def _alone(machine: Machine, state: CaseState, *, is_calm: bool = False) -> str | None:
    independence = Independence(state.execution.plan, machine.config)
    found = independence.alone(state.execution, machine.alternatives(state), is_calm=is_calm)
    return None if found is None else found[1].target.name


@pytest.mark.parametrize(
    ("mode", "checkpoints", "before", "alone"),
    [
        pytest.param("aligned", 1, ("left[0]",), "count[0]", id="one record waits"),
        pytest.param("aligned", 1, ("left[0]", "left[0]"), "count[0]", id="one each for two tasks"),
        pytest.param("aligned", 1, ("left[0]", "right[0]"), None, id="two inputs have a record"),
        pytest.param("aligned", 1, ("left[0]", "left[0]", "left[0]", *DRAINED), None, id="two of one input"),
        pytest.param("unaligned", 1, ("left[0]",), None, id="a barrier may overtake it"),
        pytest.param("unaligned", 0, ("left[0]",), "count[0]", id="no barrier comes"),
        pytest.param("unaligned", 0, ("left[0]", "count[0]"), "out[0]", id="a sink that collects"),
        pytest.param("aligned", 1, (), None, id="only sources and the checkpoint"),
    ],
)
def test_who_may_read_at_once(mode: str, checkpoints: int, before: tuple[str, ...], alone: str | None) -> None:
    """A task reads alone when no other order of reading could still come of what waits or arrives."""
    machine = Machine(counting(3, 3), calm_case(checkpoints, mode=mode))
    assert _alone(machine, _state(machine, *before)) == alone
    machine.close()


@pytest.mark.parametrize(("transactional", "alone"), [(True, "out[0]"), (False, None)])
def test_a_sink_that_shows_rows_at_once_is_never_alone(transactional: bool, alone: str | None) -> None:
    """Its rows are there before or after any other lasting effect, and a crash shows which."""
    machine = Machine(straight(2, transactional=transactional), calm_case(1))
    assert _alone(machine, _state(machine, "numbers[0]")) == alone
    machine.close()


def test_after_the_last_fault_the_job_manager_is_fastest() -> None:
    """Then a checkpoint that is due begins at once, and barriers do not overtake records."""
    machine = Machine(counting(3, 3), calm_case(1, mode="unaligned"))
    assert _alone(machine, _state(machine, "left[0]"), is_calm=True) == "checkpoint driver"
    machine.close()
