"""Ready-made aggregates: exact, independent of order, mergeable."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, strategies as st

from operators.basic import AggregateFunction, aggregates


def fold(aggregate: AggregateFunction, values: list[Any]) -> Any:
    accumulator = aggregate.create()
    for value in values:
        accumulator = aggregate.add(accumulator, value)
    return accumulator


ALL = {
    "count": aggregates.count(),
    "total": aggregates.total(),
    "mean": aggregates.mean(),
    "minimum": aggregates.minimum(),
    "maximum": aggregates.maximum(),
}
VALUES = st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40)), max_size=20)


@given(VALUES)
def test_results_are_those_of_the_whole_list(values: list[int | None]) -> None:
    """Each aggregate gives what Python's own functions give over the values that are not None."""
    known = [value for value in values if value is not None]
    expected = {
        "count": len(values),
        "total": sum(known),
        "mean": float(Fraction(sum(known), len(known))) if known else None,
        "minimum": min(known, default=None),
        "maximum": max(known, default=None),
    }
    together = aggregates.combined(**ALL)

    assert {name: one.get_result(fold(one, values)) for name, one in ALL.items()} == expected
    assert together.get_result(fold(together, values)) == expected


@given(VALUES, st.integers(0, 20), st.randoms(use_true_random=False))
def test_order_and_grouping_do_not_matter(values: list[int | None], cut: int, shuffle: Any) -> None:
    """Any order gives the same accumulator, and so does merging two parts."""
    together = aggregates.combined(**ALL)
    shuffled = list(values)
    shuffle.shuffle(shuffled)
    whole = fold(together, values)

    assert fold(together, shuffled) == whole
    assert together.merge is not None
    assert together.merge(fold(together, values[:cut]), fold(together, values[cut:])) == whole


@pytest.mark.parametrize("aggregate", [aggregates.total(), aggregates.mean()])
@pytest.mark.parametrize("value", [0.5, True, "1"])
def test_only_ints_are_added(aggregate: AggregateFunction, value: Any) -> None:
    """Floats would make the result depend on the order of arrival, so they are refused with the way out."""
    with pytest.raises(TypeError, match=r"adds ints only, got .* Scale to ints first"):
        fold(aggregate, [1, value])


def test_combined_needs_parts() -> None:
    """A combination of nothing is a mistake."""
    with pytest.raises(ValueError, match="combined\\(\\) needs at least one aggregate"):
        aggregates.combined()
