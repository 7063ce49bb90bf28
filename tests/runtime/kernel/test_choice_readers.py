"""The readers of one choice sequence: seed, recording, sparse schedule, priorities, enumeration."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from engine.runtime.kernel import SCHEDULE, START_NS, Choice, ChoiceRecorder, Kernel, PriorityChoices, SparseChoices
from engine.runtime.kernel.choices import EnumeratedChoices


class Worker:
    """A target of kernel events that writes down its turns, and has a few more."""

    def __init__(self, name: str, kernel: Kernel, turns: int, said: list[str]) -> None:
        self.name, self._kernel, self._turns, self._said = name, kernel, turns, said

    def turn(self, _payload: None) -> None:
        """One turn; the next one is at the same instant."""
        self._said.append(self.name)
        self._turns -= 1
        if self._turns:
            self._kernel.schedule(self._kernel.now_ns, "turn", self)


def order_of(choices: ChoiceRecorder, names: str = "abc", turns: int = 2) -> str:
    kernel, said = Kernel(START_NS, choices), []
    for name in names:
        kernel.schedule(START_NS + 1, "turn", Worker(name, kernel, turns, said))
    kernel.run()
    return "".join(said)


@pytest.mark.parametrize(
    "make", [lambda: ChoiceRecorder("7"), lambda: PriorityChoices("7", 3), lambda: SparseChoices("7", {1: 2})]
)
def test_what_any_reader_recorded_is_replayed(make: Callable[[], ChoiceRecorder]) -> None:
    """The log of each reader is a recording that gives the same run."""
    first = make()
    order = order_of(first)
    assert order_of(ChoiceRecorder(replay=first.log)) == order
    sparse = {number: choice.value for number, choice in enumerate(first.log) if choice.value}
    assert order_of(SparseChoices("0", sparse)) == order


def test_a_pick_is_a_draw_of_the_schedule() -> None:
    """The short way of picking among several returns and records exactly the same as a draw from the stream."""
    picking, drawing = ChoiceRecorder("seed"), ChoiceRecorder("seed")
    ready = [(0, number, "turn", None, None) for number in range(5)]
    picked = [picking.pick(ready[:size]) for size in (5, 3, 2, 4)]
    assert picked == [drawing.draw(SCHEDULE, size) for size in (5, 3, 2, 4)]
    assert picking.log == drawing.log == [Choice(SCHEDULE, value, size)
                                          for value, size in zip(picked, (5, 3, 2, 4), strict=True)]
    assert picking.digest() == drawing.digest()


def test_sparse_choices_are_first_come_first_served_and_cut_to_the_bound() -> None:
    """Without exceptions the oldest event goes first; a value past the bound means the last one."""
    assert order_of(SparseChoices("0", {})) == "abcabc"
    assert order_of(SparseChoices("0", {0: 99})) == order_of(SparseChoices("0", {0: 2}))[:6]
    assert order_of(SparseChoices("0", {0: 2}))[0] == "c"


def test_sparse_choices_draw_other_streams_from_the_seed() -> None:
    """Only the schedule is given; the seed draws all other streams."""
    assert [SparseChoices("s", {}).draw("other", 1_000) for _ in range(3)] == [
        ChoiceRecorder("s").draw("other", 1_000) for _ in range(3)
    ]


def test_without_changes_a_priority_is_kept_to_the_end() -> None:
    """Each target has all its turns before one of a lower priority has any."""
    for seed in range(20):
        order = order_of(PriorityChoices(str(seed), 0), turns=4)
        assert sorted(order) == sorted("abc" * 4)
        assert [order[at : at + 4] for at in (0, 4, 8)] == [order[at] * 4 for at in (0, 4, 8)]


def test_changes_of_priority_interrupt_somebody() -> None:
    """With changes other targets interrupt the turns of one target; with each seed the run is the same."""
    orders = [order_of(PriorityChoices(str(seed), 3), turns=6) for seed in range(40)]
    assert orders == [order_of(PriorityChoices(str(seed), 3), turns=6) for seed in range(40)]
    blocks = ["".join(one * 6 for one in order) for order in ("abc", "acb", "bac", "bca", "cab", "cba")]
    assert sum(order not in blocks for order in orders) > 5


def test_enumeration_finds_every_order_once() -> None:
    """Three targets with one turn each have six orders, with two turns each 90: all are found, none twice."""
    for turns, orders in ((1, 6), (2, 90)):
        found: list[str] = []
        prefix: tuple[int, ...] | None = ()
        while prefix is not None:
            choices = EnumeratedChoices(prefix=prefix)
            found.append(order_of(choices, turns=turns))
            prefix = choices.following()
        assert (len(found), len({*found})) == (orders, orders)


def test_enumeration_varies_only_the_first_draws() -> None:
    """With a depth of one only the first draw has its alternatives."""
    choices = EnumeratedChoices()
    order_of(choices)
    assert choices.following(1) == (1,)
    choices = EnumeratedChoices(prefix=(2,))
    order_of(choices)
    assert choices.following(1) is None


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_prefixes_ascend_in_lexicographic_order(bounds: list[int]) -> None:
    """Whatever the bounds, the sequences come in order and are as many as there are."""
    seen: list[tuple[int, ...]] = []
    prefix: tuple[int, ...] | None = ()
    while prefix is not None:
        choices = EnumeratedChoices(prefix=prefix)
        for bound in bounds:
            choices.draw(SCHEDULE, bound)
        seen.append(tuple(choice.value for choice in choices.log))
        prefix = choices.following()
    product = 1
    for bound in bounds:
        product *= bound
    assert seen == sorted({*seen})
    assert len(seen) == product
