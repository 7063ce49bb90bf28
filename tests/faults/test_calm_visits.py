"""Visits at which chance cannot strike yet are counted together, and nothing else changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, strategies as st

from engine.faults.fault import FaultMix
from engine.faults.opportunities import Opportunities, Struck
from engine.faults.process import KINDS, ProcessFaults, RaisedOnPurposeError
from engine.observe.points import AFTER, BEFORE
from engine.runtime.faulted import StruckDown
from engine.runtime.kernel import ChoiceRecorder

VISITS = [
    (point, phase, actor)
    for point in ("user.process", "user.snapshot", "barrier.receive", "notify.send", "sink.commit")
    for phase in (BEFORE, AFTER)
    for actor in ("count[0]", "out[1]", "job manager")
]


class _NeverCalm(Opportunities):
    """Is told of every visit at once."""

    calm = 0  # type: ignore[assignment]


def _struck(mix: FaultMix, visits: list[int], family: type[Opportunities]) -> tuple[Any, ...]:
    choices = ChoiceRecorder("7")
    struck = Struck(mix, choices)
    faults = ProcessFaults((), mix, struck)
    faults._by_chance = family(KINDS, (), mix, struck, details=faults._details)
    nothing = SimpleNamespace(pause=lambda *_: None, condemn=lambda *_: None)
    faults._execution = SimpleNamespace(  # type: ignore[assignment]
        pause=nothing.pause, condemn=nothing.condemn, config=SimpleNamespace(heartbeat_timeout_ns=9)
    )
    faults._known_names = {}
    outcomes = []
    for number in visits:
        try:
            faults.at(*VISITS[number])
            outcomes.append("")
        except (StruckDown, RaisedOnPurposeError) as error:
            outcomes.append(str(error))
    return outcomes, struck.faults, choices.log, faults.visits


@given(
    st.dictionaries(st.sampled_from(KINDS), st.integers(5_000, 400_000), min_size=1),
    st.integers(1, 5),
    st.lists(st.integers(0, len(VISITS) - 1), max_size=200),
)
def test_visits_counted_together_change_no_fault(chances: dict[str, int], most: int, visits: list[int]) -> None:
    """The same faults strike at the same visits as when chance is told of each visit at once, with the same draws."""
    mix = FaultMix(chances, most=most)
    assert _struck(mix, visits, Opportunities) == _struck(mix, visits, _NeverCalm)
