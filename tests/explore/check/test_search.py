"""The search finds every ending, with and without its reductions, and the first wrong one is a shortest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from engine.cli.cases import load_subject_and_scenario
from engine.elements.errors import ConfigurationError
from engine.explore.check import STATES, CheckOrder
from engine.explore.check.search import TIME, Search
from engine.explore.run import Subject
from tests.explore.check.jobs import calm_case, counting, hasty, merging, outcomes, straight, windowed

TWICE = ("finished", (("out", ("0", "0")),), True)
ONCE = ("finished", (("out", ("0",)),), False)


@pytest.mark.parametrize(
    ("subject", "order"),
    [
        pytest.param(merging(), CheckOrder(calm_case(mode="none"), faults=0), id="an order that shows"),
        pytest.param(
            straight(transactional=False), CheckOrder(calm_case(mode="none")), id="anybody dies, and nothing is saved"
        ),
    ],
)
def test_reduction_loses_no_ending(subject: Subject, order: CheckOrder) -> None:
    """The endings with reduction are those without, from a fraction of the states."""
    reduced, fast = outcomes(subject, order)
    whole, slow = outcomes(subject, CheckOrder(order.case, order.faults, order.kinds, order.victims, reduction=False))
    assert fast.found.is_complete
    assert slow.found.is_complete
    assert reduced == whole
    assert fast.found.states * 3 < slow.found.states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "order"),
    [
        pytest.param(
            straight(transactional=False), CheckOrder(calm_case(1), victims=("task",)), id="shown at once, a checkpoint"
        ),
        pytest.param(straight(), CheckOrder(calm_case(1), faults=0), id="a checkpoint at any moment"),
        pytest.param(straight(), CheckOrder(calm_case(), victims=("task",)), id="a task dies"),
        pytest.param(hasty(), CheckOrder(calm_case(), victims=("process",)), id="committed on the barrier"),
        pytest.param(counting(1, 1, parallelism=1), CheckOrder(calm_case(), faults=0), id="two sources"),
    ],
)
def test_reduction_loses_no_ending_of_larger_jobs(subject: Subject, order: CheckOrder) -> None:
    """The same with thousands of states."""
    reduced, _ = outcomes(subject, order)
    whole, slow = outcomes(
        subject, CheckOrder(order.case, order.faults, order.kinds, order.victims, seconds=3_600, reduction=False)
    )
    assert slow.found.is_complete
    assert reduced == whole


class _NothingIsKnown(set[bytes]):
    def __contains__(self, _one: object) -> bool:
        return False


@pytest.mark.parametrize("faults", [0, 1])
def test_recognising_states_loses_no_ending(faults: int) -> None:
    """The endings are those of a search that follows every path to its end, through known states too."""
    order = CheckOrder(calm_case(mode="none"), faults=faults, victims=("task",))
    subject = straight(transactional=False) if faults else merging()
    known, fast = outcomes(subject, order)
    search: Any = Search(subject, order)
    search._seen = search._struck = search._tried = _NothingIsKnown()
    every = {(one.state, one.committed, one.faults > 0) for one in search.endings()}
    assert search.found.is_complete
    assert search.found.states > fast.found.states
    assert every == known


class _NothingWasPassed(dict[bytes, int]):
    def get(self, _one: object, default: Any = None) -> Any:
        return default


def _endings(subject: Subject, order: CheckOrder, *, walks_on: bool) -> tuple[list[tuple[object, ...]], int]:
    """Every ending with the length of the shortest way to it, and how many events the search has carried out."""
    search: Any = Search(subject, order)
    if walks_on:
        search._passed = _NothingWasPassed()
    found = list(search.endings())
    assert search.found.is_complete
    endings = [(one.faults, len(one.path), one.state, one.committed, one.text) for one in found]
    return sorted(endings), search.found.transitions


@pytest.mark.parametrize(
    ("subject", "order"),
    [
        pytest.param(hasty(), CheckOrder(calm_case(), faults=2), id="two deaths"),
        pytest.param(straight(transactional=False), CheckOrder(calm_case(1)), id="shown at once"),
        pytest.param(straight(), CheckOrder(calm_case(1, mode="unaligned"), victims=("process",)), id="unaligned"),
        pytest.param(straight(), CheckOrder(calm_case(1), kinds=("lose", "duplicate")), id="lost messages"),
        pytest.param(windowed(), CheckOrder(calm_case(1)), id="windows"),
        pytest.param(merging(), CheckOrder(calm_case(mode="none"), faults=2), id="an order that shows"),
    ],
)
def test_walks_that_meet_lose_no_ending(subject: Subject, order: CheckOrder) -> None:
    """A walk that ends where an earlier one has passed loses no ending, and no shorter way to one."""
    ended, few = _endings(subject, order, walks_on=False)
    walked_on, many = _endings(subject, order, walks_on=True)
    assert ended == walked_on
    assert few < many


def test_a_walk_ends_only_where_another_one_has_passed_by_as_few_events() -> None:
    """A shorter way to a state is walked to the end, or a longer story would be told. A walk does not end at a state of
    its own: an event for a dead task leaves the state as it is, and the walk must pass it."""
    search: Any = Search(straight(), CheckOrder(calm_case()))
    state, mine = search._machine.start(), set[bytes]()
    assert [search._was_passed(state, events, mine) for events in (5, 5, 6)] == [False, False, False]
    assert search._was_passed(state, 5, set())
    assert not search._was_passed(state, 4, set())
    assert search._was_passed(state, 4, set())
    search._machine.close()


def test_a_walk_counts_the_events_of_the_way_to_it() -> None:
    """Also those of the walks before it, which it begins behind."""
    search: Any = Search(straight(), CheckOrder(calm_case(1), victims=("task",)))
    counted = []

    def noted(state: Any, events: int, _mine: set[bytes]) -> bool:
        counted.append((events, state.execution.kernel.executed))
        return False

    search._was_passed = noted
    list(search.endings())
    assert len({events for events, _ in counted}) > 1
    assert len({executed - events for events, executed in counted}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "params"),
    [
        ("counting", "aligned", {}),
        ("counting", "at-least-once", {}),
        ("finishing", "aligned", {}),
        ("in_flight", "unaligned", {}),
        ("rescaling", "aligned", {}),
        ("timers", "aligned", {"timers": "forgotten"}),
        ("two_phase_commit", "aligned", {"commit": "barrier"}),
        ("windows", "at-least-once", {}),
    ],
)
def test_walks_that_meet_lose_no_ending_of_a_teaching_job(name: str, mode: str, params: dict[str, str]) -> None:
    """The same with thousands of states, right endings and wrong ones."""
    subject, scenario = load_subject_and_scenario(f"examples/teaching/{name}.py", params)
    case = scenario.case(mode)
    config = {**case.config, "batch_size": 1, "cost.source_record_ns": 0}
    config.pop("checkpoint_interval", None)
    order = CheckOrder(replace(case, config=config, checkpoints=(0,)), seconds=3_600)
    ended, few = _endings(subject, order, walks_on=False)
    walked_on, many = _endings(subject, order, walks_on=True)
    assert ended == walked_on
    assert few < many * 0.75


@pytest.mark.parametrize("worth", [1, 1_000_000])
def test_copies_on_the_way_to_a_fault_change_nothing(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a copy before each fault or none, the search finds the same endings by the same paths."""
    order = CheckOrder(calm_case(), faults=2)
    usual = outcomes(hasty(), order)[1].found
    monkeypatch.setattr("engine.explore.check.search._WORTH_A_COPY", worth)
    other = outcomes(hasty(), order)[1].found
    assert usual.endings == other.endings
    assert (usual.states, usual.transitions, usual.struck) == (other.states, other.transitions, other.struck)


def test_the_first_wrong_ending_is_a_shortest() -> None:
    """Endings come in the order of their faults, and then of their events."""
    search = Search(straight(2, transactional=False), CheckOrder(calm_case(mode="none"), faults=2))
    found = list(search.endings())
    by_cost = [(one.faults, len(one.path)) for one in found]
    assert by_cost == sorted(by_cost)
    assert found[0].faults == 0
    assert max(one.faults for one in found) == 2


def test_every_fault_of_a_kind_is_tried() -> None:
    """Without a checkpoint to restore, a crash shows earlier rows again; without a crash none is shown twice."""
    order = CheckOrder(calm_case(mode="none"))
    found, _ = outcomes(straight(transactional=False), order)
    assert {TWICE, ONCE} <= found
    calm, _ = outcomes(straight(transactional=False), CheckOrder(calm_case(mode="none"), faults=0))
    assert calm == {ONCE}


@pytest.mark.parametrize("victim", ["process", "job manager", "task"])
def test_committing_on_the_barrier_is_found_whoever_dies(victim: str) -> None:
    """A sink that commits too early shows a row twice, if the crash comes before the checkpoint completes."""
    found, search = outcomes(hasty(), CheckOrder(calm_case(), victims=(victim,)))
    assert search.found.is_complete
    assert TWICE in found


def test_each_checkpoint_that_a_death_goes_back_to_is_tried() -> None:
    """A barrier taken too early makes one wrong checkpoint among right ones. Until a task starts from one of them, the
    states after a death are alike in everything else."""
    order = CheckOrder(calm_case(1, mode="at-least-once"), victims=("job manager",))
    found, search = outcomes(counting(2, 1, parallelism=1), order)
    assert search.found.is_complete
    assert (("out", ("('a', 1)", "('a', 2)", "('b', 1)", "('b', 2)")),) in _rows(found)


def test_lost_messages_cost_time_and_nothing_else() -> None:
    """Whichever message between job manager and task is lost or comes twice, rows are committed once."""
    found, search = outcomes(straight(), CheckOrder(calm_case(1), kinds=("lose", "duplicate"), seconds=30))
    assert search.found.is_complete
    assert search.found.struck > 10
    assert _rows(found) == {(("out", ("0",)),)}


def test_orders_that_show_are_all_endings() -> None:
    """A job whose rows depend on the order has an ending for each."""
    found, _ = outcomes(merging(), CheckOrder(calm_case(mode="none"), faults=0))
    assert _rows(found) == {(("out", ("'a'", "'ab'")),), (("out", ("'b'", "'ba'")),)}


@pytest.mark.parametrize("mode", ["aligned", "at-least-once", "unaligned"])
def test_states_are_counted_alike_again(mode: str) -> None:
    """The same search finds the same states, transitions and endings."""
    first, second = (outcomes(straight(), CheckOrder(calm_case(1, mode=mode)))[1].found for _ in range(2))
    assert (first.states, first.transitions, first.struck) == (second.states, second.transitions, second.struck)
    assert first.endings == second.endings


def test_bounds_are_kept() -> None:
    """A search that reaches a bound says that it is not complete."""
    _, search = outcomes(counting(2, 2), CheckOrder(calm_case(1), max_states=20))
    assert search.found.stopped_by == STATES
    assert not search.found.is_complete
    assert search.found.states <= 21
    _, search = outcomes(counting(2, 2), CheckOrder(calm_case(1), seconds=0.000_001))
    assert search.found.stopped_by == TIME
    assert not search.found.is_complete


def test_orders_that_make_no_sense_are_refused() -> None:
    """An unknown kind of fault, or a bound that leaves nothing, is an error."""
    with pytest.raises(ConfigurationError, match="knows no fault 'bit-flip'"):
        CheckOrder(calm_case(), kinds=("bit-flip",))
    with pytest.raises(ConfigurationError, match="bounds"):
        CheckOrder(calm_case(), faults=-1)


def _rows(found: Iterable[tuple[str, object, bool]]) -> set[object]:
    assert {state for state, _, _ in found} == {"finished"}
    return {committed for _, committed, _ in found}
