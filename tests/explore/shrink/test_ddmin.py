"""Delta debugging against brute force: what it returns fails, and without any one element it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from hypothesis import given, strategies as st

from engine.explore.shrink.ddmin import ddmin, smallest

Predicate = Callable[[Sequence[int]], bool]


def _asks(predicate: Predicate) -> tuple[Predicate, list[tuple[int, ...]]]:
    asked: list[tuple[int, ...]] = []

    def ask(items: Sequence[int]) -> bool:
        asked.append(tuple(items))
        return predicate(items)

    return ask, asked


def _is_one_minimal(kept: Sequence[int], predicate: Predicate) -> bool:
    return predicate(kept) and not any(predicate([*kept[:at], *kept[at + 1 :]]) for at in range(len(kept)))


@st.composite
def _random_predicates(draw: st.DrawFn) -> tuple[int, Predicate]:
    """Any predicate over the subsets of up to seven items that holds for all of them: nothing is monotone here."""
    count = draw(st.integers(1, 7))
    subsets = [subset for size in range(count) for subset in combinations(range(count), size)]
    failing = draw(st.sets(st.sampled_from(subsets)))
    return count, lambda items: len(items) == count or tuple(items) in failing


@given(_random_predicates())
def test_what_is_kept_is_one_minimal_for_any_predicate(given_predicate: tuple[int, Predicate]) -> None:
    """The result fails and loses that with any one element, whatever the predicate is."""
    count, predicate = given_predicate

    assert _is_one_minimal(ddmin(range(count), predicate), predicate)


@given(st.integers(1, 60), st.data())
def test_of_independent_causes_exactly_these_are_kept(count: int, data: st.DataObject) -> None:
    """When a failure needs certain items and nothing else matters, these are the result, in their order."""
    needed = sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=5)))

    kept = ddmin(range(count), lambda items: set(needed) <= set(items))

    assert needed == kept


@given(st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=4))
def test_of_several_explanations_one_is_kept(explanations: list[set[int]]) -> None:
    """When any of several sets of items is enough, the result is one that contains no smaller one."""

    def fails(items: Sequence[int]) -> bool:
        return any(one <= set(items) for one in explanations)

    kept = set(ddmin(range(10), fails))

    assert kept in explanations
    assert not any(one < kept for one in explanations)


def test_nothing_is_asked_first() -> None:
    """A failure that needs none of the items costs one question."""
    fails, asked = _asks(lambda _: True)

    assert ddmin(range(1_000), fails) == []
    assert asked == [()]


def test_one_of_a_thousand_is_found_by_halving() -> None:
    """A single cause takes about two questions per halving, not one per item."""
    fails, asked = _asks(lambda items: 617 in items)

    assert ddmin(range(1_000), fails) == [617]
    assert len(asked) < 25


def test_an_empty_list_is_not_asked_about() -> None:
    """There is nothing to remove from nothing."""
    fails, asked = _asks(lambda _: True)

    assert ddmin([], fails) == []
    assert asked == []


@given(st.integers(0, 40), st.integers(0, 40), st.sets(st.integers(0, 80)))
def test_the_number_below_the_smallest_one_does_not_fail(least: int, more: int, failing: set[int]) -> None:
    """The result fails, and the number below it does not, or there is none."""
    value = least + more

    def fails(number: int) -> bool:
        return number == value or number in failing

    found = smallest(value, least, fails)

    assert least <= found <= value
    assert fails(found)
    assert found == least or not fails(found - 1)


def test_a_large_number_takes_few_questions() -> None:
    """The distance is halved."""
    asked: list[int] = []

    def fails(number: int) -> bool:
        asked.append(number)
        return number >= 777_777

    assert smallest(10**6, 0, fails) == 777_777
    assert len(asked) <= 22
