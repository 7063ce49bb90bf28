"""Every sink, and a death while it recovers from another one, or while it comes back with another parallelism.

Modes take turns: what a sink does in a restore was written by a checkpoint of any of them, and the first death is tried
in all of them (``test_sinks_under_crashes``).
"""

from __future__ import annotations

from itertools import cycle

import pytest

from engine.faults.fault import Fault
from examples import sinks
from tests.explore.search.sink_deaths import MODES, PROCESS, RECOVERING, case_of, deaths, places, problem, subject_of

each_sink_in_a_mode = pytest.mark.parametrize(("sink", "mode"), list(zip(sinks.SINKS, cycle(MODES), strict=False)))


@pytest.mark.slow
@each_sink_in_a_mode
def test_every_sink_survives_a_second_death(sink: str, mode: str) -> None:
    """The same at every step of a recovery, and after it."""
    subject = subject_of(sink)
    problems = [
        problem(subject, case_of(mode, first, death))
        for first in RECOVERING
        for death in deaths(places(subject, mode, first))
        if death.point is not None and death.point.startswith(("restore.", "sink.", "user.close"))
    ]
    assert len(problems) > 20
    assert [one for one in problems if one is not None] == []


@pytest.mark.slow
@each_sink_in_a_mode
def test_every_sink_survives_a_change_of_parallelism_anywhere(sink: str, mode: str) -> None:
    """The process dies at a step and is resumed with one and with three subtasks; lost notifications besides."""
    subject = subject_of(sink)
    lost = "lose:notify_checkpoint_complete *#2"
    for place in places(subject, mode):
        if place.phase == "torn" or place.number == 1:
            continue
        for parallelism in (1, 3):
            rescale = Fault(
                "rescale", PROCESS, point=place.point, phase=place.phase, number=place.number, amount=parallelism
            )
            assert problem(subject, case_of(mode, rescale)) is None
        crash = Fault("crash", "*", point=place.point, phase=place.phase, number=place.number)
        assert problem(subject, case_of(mode, lost, crash)) is None
