"""Fingerprints differ exactly for states that behave differently."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.checkpoint.coordinator import Acknowledge
from engine.explore.check.machine import CaseState, Machine
from engine.explore.check.watcher import CRASH, Occasion, Strike
from engine.runtime.faulted import PROCESS
from state_backends.base import ValueStateDescriptor
from state_backends.files import FileSystem
from tests.explore.check.jobs import calm_case, counting, straight


def _run(machine: Machine, state: CaseState, *names: str) -> CaseState:
    """The next event of each of these, in this order."""
    for name in names:
        position = next(at for at, event in machine.alternatives(state) if getattr(event.target, "name", "") == name)
        machine.execute(state, position)
    return state


def test_the_way_to_a_state_does_not_show() -> None:
    """Events of tasks that have nothing to do with each other make one state in either order."""
    machine = Machine(counting(2, 2), calm_case())
    first = _run(machine, machine.start(), "left[0]", "out[0]", "count[0]")
    second = _run(machine, machine.start(), "out[0]", "left[0]", "count[0]")
    assert machine.fingerprint(first) == machine.fingerprint(second)
    assert machine.fingerprint(first) != machine.fingerprint(machine.start())
    machine.close()


def test_the_order_of_records_that_wait_shows() -> None:
    """Which of two inputs is read first decides what comes out."""
    machine = Machine(counting(1, 1), calm_case())
    first = _run(machine, machine.start(), "left[0]", "right[0]")
    second = _run(machine, machine.start(), "right[0]", "left[0]")
    assert machine.fingerprint(first) != machine.fingerprint(second)
    machine.close()


def _change_keyed_state(state: CaseState) -> None:
    task = next(task for task in state.execution.manager.tasks.values() if task.name == "count[0]")
    backend = task.chain.contexts[0].keyed_backend()
    backend.set_current_key("a")
    backend.value_state(ValueStateDescriptor("other")).update(17)
    state.declared.clear()


def _write(files: FileSystem, path: str) -> None:
    with files.open_write(path) as file:
        file.write(b"1")


def _change_file(state: CaseState) -> None:
    _write(state.world.files, "/news")


def _change_output(state: CaseState) -> None:
    state.world.sinks["out"]._results.append([(7, 7)])  # type: ignore[attr-defined]


def _change_storage(state: CaseState) -> None:
    _write(state.world.checkpoints, "/checkpoints/other")


@pytest.mark.parametrize("change", [_change_keyed_state, _change_file, _change_output, _change_storage])
def test_what_decides_the_future_shows(change: Callable[[CaseState], None]) -> None:
    """Declared state, files, checkpoints and what readers see are part of the state."""
    machine = Machine(counting(2, 2), calm_case(), faults=1)
    state = _run(machine, machine.start(), "left[0]", "count[0]")
    before = machine.fingerprint(state)
    change(state)
    assert machine.fingerprint(state) != before
    machine.close()


def test_checkpoints_do_not_show_once_nothing_can_fail() -> None:
    """With no fault left, it does not matter which checkpoint the job could restore."""
    machine = Machine(counting(2, 2), calm_case())
    state = _run(machine, machine.start(), "left[0]", "count[0]")
    before = machine.fingerprint(state)
    _change_storage(state)
    assert machine.fingerprint(state) == before
    _change_output(state)
    changed = machine.fingerprint(state)
    _change_keyed_state(state)
    assert len({before, changed, machine.fingerprint(state)}) == 3
    machine.close()


def test_acknowledgements_may_come_in_any_order() -> None:
    """Two of one checkpoint make one state in either order, but not with another checkpoint's between them."""
    machine = Machine(counting(1, 1), calm_case(1))
    found = []
    for tasks in ((2, 0, 1), (2, 1, 0), (0, 2, 1)):
        state = machine.start()
        manager, kernel = state.execution.manager, state.execution.kernel
        for number in tasks:
            ack = Acknowledge(2 if number == 2 else 1, 1, (number % 2, 0), None)
            kernel.schedule(kernel.now_ns, "receive_acknowledge", manager, ack)
        found.append(machine.fingerprint(state))
    assert found[0] == found[1] != found[2]
    machine.close()


def test_every_step_of_a_snapshot_shows() -> None:
    """A snapshot that has been written half is not one that has not been begun."""
    machine = Machine(straight(), calm_case())
    state = machine.start()
    number = 0
    while not state.is_over:
        alternatives = machine.alternatives(state)
        steps = [position for position, event in alternatives if event.operation == "step"]
        before = machine.fingerprint(state)
        machine.execute(state, (steps or [position for position, _ in alternatives])[0])
        number += len(steps)
        assert not steps or machine.fingerprint(state) != before
    assert number > 4
    machine.close()


@pytest.mark.parametrize(("phase", "rows"), [("before", []), ("after", ["0"])])
def test_a_victim_dies_at_the_very_point(phase: str, rows: list[str]) -> None:
    """A sink that dies before its commit has committed nothing; one that dies after it has committed everything."""
    machine = Machine(straight(), calm_case(), faults=1)
    state = machine.start(counts=True)
    occasion = Occasion("sink.commit", phase, "out[0]")
    while occasion not in state.watcher.passed:
        copy = machine.copy_of(state)
        position = machine.alternatives(state)[0][0]
        machine.execute(state, position)
    index, worlds = state.watcher.passed.index(occasion), state.watcher.worlds
    assert len(worlds) == len(state.watcher.passed)
    assert (worlds[index] != worlds[0]) is bool(rows)
    state = machine.state_of(copy)
    machine.alternatives(state)
    machine.execute(state, position, (Strike(index, CRASH, "out[0]"),))
    assert state.world.committed() == {"out": rows}
    assert str(state.watcher.exact[0]) == f"crash:out[0]@{phase}:sink.commit#1"
    machine.close()


def test_a_fault_that_has_struck_is_one_less() -> None:
    """A process that has died leaves another state than one that has not, and an exact fault in the form of a case."""
    machine = Machine(straight(), calm_case(), faults=2)
    state, other = machine.start(counts=True), machine.start()
    position, event = machine.alternatives(state)[0]
    machine.execute(state, position, (Strike(0, CRASH, PROCESS),))
    machine.execute(other, position)
    assert event.operation == "run"
    assert machine.fingerprint(state) != machine.fingerprint(other)
    assert state.processes == 2
    assert [fault.kind for fault in state.watcher.exact] == ["crash"]
    machine.close()
