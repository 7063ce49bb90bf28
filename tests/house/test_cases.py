"""The helpers for many cases: a failure names its case, and no value is left to the slow tests alone."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.cases import case, crossed


def test_a_failure_names_its_case() -> None:
    """An error raised inside is raised again, with the values of the case."""
    with pytest.raises(AssertionError) as caught, case(after=3, mode="aligned"):
        raise AssertionError("lost")

    assert caught.value.__notes__ == ["in the case after=3, mode='aligned'"]


def test_any_two_values_meet_in_a_quick_case() -> None:
    """Of three arguments; all combinations are tests, one out of so many a quick one."""
    axes = {"first": "abcd", "second": "wxy", "third": "123"}
    cells = crossed(quick=3, **axes).args[1]
    quick = [cell.values for cell in cells if not cell.marks]

    assert [cell.values for cell in cells] == list(product(*axes.values()))
    assert len(quick) == len(cells) // 3
    for one, other in combinations(range(3), 2):
        met = {(values[one], values[other]) for values in quick}
        assert met == set(product(list(axes.values())[one], list(axes.values())[other]))


def test_a_share_that_leaves_a_value_out_is_refused() -> None:
    """With two values of an argument, one of them would be in no quick case out of three."""
    with pytest.raises(AssertionError, match="in no quick test"):
        crossed(quick=3, first="ab", second="wxyz")
