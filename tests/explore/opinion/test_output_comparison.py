"""Comparing committed output tells lost, duplicated and unexpected rows apart."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from engine.explore import compare_outputs
from engine.explore.opinion.output_comparison import CountDifference, DifferenceCounts

outputs = st.dictionaries(st.sampled_from("pq"), st.lists(st.sampled_from("abc"), max_size=6), max_size=2)


def test_same_rows_in_another_order_are_the_same_output() -> None:
    """Subtasks that run in parallel may commit in any order."""
    comparison = compare_outputs({"p": ["a", "b", "b"]}, {"p": ["b", "a", "b"]})

    assert comparison.equal
    assert comparison.describe() == "same output: 3 rows"


def test_each_kind_of_difference_is_counted() -> None:
    """A missing row is lost, a row too often is duplicated, a row from nowhere is unexpected."""
    expected = {"p": ["a", "a", "b"], "q": ["c"]}
    actual = {"p": ["a", "b", "b", "b"], "q": ["c", "z"]}
    comparison = compare_outputs(expected, actual)

    assert comparison.differences == (
        CountDifference("p", "a", 2, 1),
        CountDifference("p", "b", 1, 3),
        CountDifference("q", "z", 0, 1),
    )
    assert comparison.counts == DifferenceCounts(lost=1, duplicated=2, unexpected=1)
    assert not comparison.equal


def test_lost_output_is_no_success_for_want_of_duplicates() -> None:
    """A run that commits nothing has no duplicates and is wrong all the same."""
    assert compare_outputs({"p": ["a", "b"]}, {}).counts.lost == 2


def test_an_empty_partition_is_as_good_as_none() -> None:
    """Whether a partition without rows was created says nothing."""
    assert compare_outputs({"p": []}, {"q": []}).equal


def test_a_long_description_says_what_it_leaves_out() -> None:
    """The first rows are shown, and how many more there are."""
    text = compare_outputs({"": ["a", "b", "c"]}, {}).describe(limit=1)

    assert text.splitlines() == [
        "output differs: 3 lost, 0 duplicated, 0 unexpected (3 rows expected, 0 found)",
        "  .: a  expected 1x, found 0x",
        "  … and 2 further rows",
    ]


@given(outputs, outputs)
def test_counts_explain_the_whole_difference(expected: dict[str, list[str]], actual: dict[str, list[str]]) -> None:
    """Expected rows minus lost plus duplicated plus unexpected ones are the actual rows; none differs means equal."""
    comparison = compare_outputs(expected, actual)
    counts = comparison.counts

    assert comparison.rows_expected - counts.lost + counts.duplicated + counts.unexpected == comparison.rows_actual
    multisets = [{p: Counter(rows) for p, rows in output.items() if rows} for output in (expected, actual)]
    assert comparison.equal == (multisets[0] == multisets[1])
