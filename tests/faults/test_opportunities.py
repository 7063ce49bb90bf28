"""Exact and drawn faults: which opportunity they strike, and that a drawn fault can be repeated without drawing."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

from hypothesis import given, strategies as st

from engine.faults.fault import Fault, FaultMix, parse_fault
from engine.faults.opportunities import Opportunities, Struck, Windows, plain_target
from engine.runtime.kernel import ChoiceRecorder

KINDS = ("lose", "duplicate", "late")
NAMES = ("receive_acknowledge a[0]", "receive_acknowledge b[1]", "trigger_checkpoint a[0]")


def family(*texts: str, mix: FaultMix | None = None, seed: str = "0") -> tuple[Opportunities, Struck]:
    mix = FaultMix() if mix is None else mix
    struck = Struck(mix, ChoiceRecorder(seed))
    return Opportunities(KINDS, [parse_fault(text) for text in texts], mix, struck), struck


def test_an_exact_fault_strikes_its_opportunity_and_no_other() -> None:
    """The third visit that the target matches, whatever visits come in between."""
    opportunities, struck = family("lose:receive_acknowledge *#3")

    fates = [opportunities.strike(name) for name in (NAMES[0], NAMES[2], NAMES[1], NAMES[0], NAMES[0])]

    assert [fault is not None for fault in fates] == [False, False, False, True, False]
    assert struck.faults == [parse_fault("lose:receive_acknowledge *#3")]
    assert not opportunities.unused


def test_a_fault_counts_visits_that_another_one_strikes() -> None:
    """Two faults with one target: each counts its own number, and the first in the list wins where both are due."""
    opportunities, struck = family(f"late:{NAMES[0]}#2~5us", f"lose:{NAMES[0]}#2", f"lose:{NAMES[0]}#3")

    fates = [opportunities.strike(NAMES[0]) for _ in range(3)]

    assert [fault and fault.kind for fault in fates] == [None, "late", "lose"]
    assert len(struck.faults) == 2


def test_an_impossible_kind_neither_strikes_nor_counts() -> None:
    """A message that cannot be lost is no opportunity for a loss."""
    opportunities, _ = family("lose:*#1")

    assert opportunities.strike("may_finish a[0]", among=("late",)) is None
    assert opportunities.unused == (parse_fault("lose:*#1"),)
    assert opportunities.strike(NAMES[0]) is not None


@given(st.integers(0, 50), st.lists(st.sampled_from(NAMES), max_size=60))
def test_what_strikes_by_chance_strikes_again_as_an_exact_fault(seed: int, visits: list[str]) -> None:
    """The faults noted in a run by chance, given exactly, strike the same visits and draw nothing."""
    mix = FaultMix({"lose": 150_000, "late": 100_000}, most=5)
    drawn, struck = family(mix=mix, seed=str(seed))
    fates = [drawn.strike(name) for name in visits]

    exact, again = family(*map(str, struck.faults))

    assert [exact.strike(name) for name in visits] == fates
    assert again.faults == struck.faults


def test_chance_ends_with_most_and_with_healing() -> None:
    """At most so many by chance, and none once the world is healed; exact ones do not count and always strike."""
    mix = FaultMix({"lose": 1_000_000}, most=3)
    opportunities, struck = family(f"late:{NAMES[1]}#90", mix=mix)

    many = [opportunities.strike(NAMES[0]) for _ in range(60)]
    healed, other = family(mix=mix)
    other.heal()

    assert sum(fault is not None for fault in many) == 3 == len(struck.faults)
    assert not any(healed.strike(NAMES[0]) for _ in range(60))
    assert any(opportunities.strike(NAMES[1]) for _ in range(90))


def test_chances_are_about_what_was_asked_for() -> None:
    """A kind strikes about as often as its millionths say, and a third more, for one in four comes in a pair."""
    opportunities, struck = family(mix=FaultMix({"lose": 30_000, "late": 10_000}, most=10**6))

    for _ in range(20_000):
        opportunities.strike(NAMES[0])

    kinds = [fault.kind for fault in struck.faults]
    assert 650 <= kinds.count("lose") <= 950
    assert 200 <= kinds.count("late") <= 340


def test_some_strikes_are_soon_followed_by_another() -> None:
    """The second fault hits the reaction to the first: far more often than were each drawn by itself."""
    opportunities, struck = family(mix=FaultMix({"lose": 1_000}, most=10**6))

    for _ in range(200_000):
        opportunities.strike(NAMES[0])

    numbers = [fault.number for fault in struck.faults]
    near = sum(second - first <= 2_000 // 64 for first, second in pairwise(numbers))
    assert 0.15 <= near / len(numbers) <= 0.4


def test_windows_are_a_function_of_time() -> None:
    """In force from their instant on and no longer than they last; noted once; if drawn, begun one ns later."""
    struck = Struck(FaultMix(), ChoiceRecorder())
    windows = Windows(("partition",), [parse_fault("partition:a[0]@10ns~5ns")], struck)
    windows.begin(Fault("partition", for_ns=3), "b[1]", 20)

    assert [at for at in range(8, 20) if windows.in_force("partition", ("a[0]",), at)] == [10, 11, 12, 13, 14]
    assert [at for at in range(18, 30) if windows.in_force("partition", ("b[1]",), at)] == [21, 22, 23]
    assert windows.in_force("partition", ("c[0]",), 12) is None
    assert struck.faults == [parse_fault("partition:a[0]@10ns~5ns")]


@given(st.text(max_size=12))
def test_any_name_can_be_a_target(name: str) -> None:
    """Whatever a task is called, a fault noted for it has a text form that means it."""
    target = plain_target(f"x{name}x")
    fault = Fault("lose", target)

    assert parse_fault(str(fault)).target == target
    assert fault.hits(f"x{name}x")


def test_opportunities_can_be_copied_in_the_middle() -> None:
    """A search forks a run: both copies go on alike, and one does not disturb the other."""
    opportunities, _ = family(f"lose:{NAMES[0]}#2", mix=FaultMix({"late": 200_000}, most=9))
    opportunities.strike(NAMES[0])

    for fork in (copy.deepcopy(opportunities), pickle.loads(pickle.dumps(opportunities))):
        fork.strike(NAMES[0])
        assert fork.unused == ()
        assert opportunities.unused != ()
    assert opportunities.strike(NAMES[0]) == Fault("lose", NAMES[0], number=2)
