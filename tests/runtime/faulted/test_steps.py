"""Steps between named points: visits that can bring no fault are only noted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.observe.points import AFTER, BEFORE
from engine.runtime.faulted import NotedVisits, Weights
from engine.runtime.faulted.task_faults import Step
from tests.runtime.faulted.test_interference import Calm


class _Asked(Calm):
    def __init__(self, calm: int) -> None:
        self.visited = NotedVisits(Weights({"p": 2}))
        self.visited.calm = calm
        self.asked: list[tuple[str, str, str]] = []

    def at(self, point: str, phase: str, actor: str) -> None:
        self.asked.append((point, phase, actor))


@pytest.mark.parametrize(("calm", "noted", "left"), [(4, 2, 0), (3, 1, 1), (1, 0, 1)])
def test_a_visit_is_noted_while_it_can_bring_no_fault(calm: int, noted: int, left: int) -> None:
    """A visit with no more opportunities than are calm is noted and takes them; at others the interference is asked."""
    asked = _Asked(calm)

    with Step(asked, ("p",), "count[0]"):
        pass

    visits = [("p", BEFORE, "count[0]"), ("p", AFTER, "count[0]")]
    assert (asked.visited.passed, asked.asked, asked.visited.calm) == (visits[:noted], visits[noted:], left)


def test_a_zombie_is_never_only_noted() -> None:
    """It counts as dead: its visits go under another name, also when no fault is possible."""
    asked, life = _Asked(100), SimpleNamespace(disowned=False)

    with Step(asked, ("p",), "count[0]", life):
        life.disowned = True

    assert asked.visited.passed == [("p", BEFORE, "count[0]")]
    assert asked.asked == [("p", AFTER, "zombie count[0]")]
    with Step(asked, ("p",), "count[0]", life):
        assert asked.asked[1:] == [("p", BEFORE, "zombie count[0]")]
