"""Two DataFrames are compared as multisets of whole rows, exactly."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from spark_bridge.errors import OracleSchemaError
from spark_bridge.oracle import OracleReport, compare_multisets

pytestmark = pytest.mark.spark

SCHEMA = "k int, v string"


def compare(spark: Any, expected: list[Any], actual: list[Any], schema: str = SCHEMA, **options: Any) -> OracleReport:
    return compare_multisets(
        spark.createDataFrame(expected, schema), spark.createDataFrame(actual, schema), ["k"], **options
    )


def test_equal_in_any_order(spark: Any) -> None:
    """The same rows in another order are equal; duplicates count."""
    report = compare(spark, [(1, "a"), (2, "b"), (1, "a")], [(2, "b"), (1, "a"), (1, "a")])

    assert report == OracleReport(expected_rows=3, actual_rows=3, missing=0, unexpected=0, examples=())
    assert (report.equal, report.matched) == (True, 3)
    assert report.explain() == "equal: 3 rows on both sides"


def test_nothing_equals_nothing(spark: Any) -> None:
    """Two empty sides are equal."""
    assert compare(spark, [], []) == OracleReport(0, 0, 0, 0, ())


def test_a_row_committed_twice_shows(spark: Any) -> None:
    """A duplicate is an unexpected row although the sets are equal."""
    report = compare(spark, [(1, "a")], [(1, "a"), (1, "a"), (1, "a")])

    assert (report.equal, report.missing, report.unexpected, report.matched) == (False, 0, 2, 1)
    (example,) = report.examples
    assert (example.key, example.missing, example.unexpected) == ({"k": 1}, (), (({"k": 1, "v": "a"}, 2),))


def test_a_lost_row_shows(spark: Any) -> None:
    """One of two equal rows missing is one missing row."""
    report = compare(spark, [(1, "a"), (1, "a"), (2, "b")], [(1, "a"), (2, "b")])

    assert (report.missing, report.unexpected, report.matched) == (1, 0, 2)
    assert report.examples[0].missing == (({"k": 1, "v": "a"}, 1),)


def test_a_wrong_value_shows_both_rows_under_its_key(spark: Any) -> None:
    """A changed value is one missing and one unexpected row, quoted together and explained."""
    report = compare(spark, [(1, "a"), (2, "b")], [(1, "a"), (2, "x")])

    assert (report.missing, report.unexpected) == (1, 1)
    assert report.explain().splitlines() == [
        "different: 1 rows agree, 1 missing, 1 unexpected (expected 2 rows, found 2)",
        "  at {'k': 2}",
        "    missing 1 x {'k': 2, 'v': 'b'}",
        "    unexpected 1 x {'k': 2, 'v': 'x'}",
    ]


def test_nulls_are_values(spark: Any) -> None:
    """A null equals a null and nothing else, in keys too."""
    assert compare(spark, [(None, None), (1, None)], [(1, None), (None, None)]).equal

    report = compare(spark, [(None, None)], [(None, "a")])
    assert (report.missing, report.unexpected) == (1, 1)
    assert report.examples[0].key == {"k": None}


def test_doubles_are_exact(spark: Any) -> None:
    """nan equals nan, zero has no sign, and the last bit of a sum matters."""
    schema = "k int, v double"
    nan = float("nan")

    assert compare(spark, [(1, nan), (2, 0.0)], [(2, -0.0), (1, nan)], schema).equal
    assert compare(spark, [(1, 0.3)], [(1, 0.1 + 0.2)], schema).missing == 1


@pytest.mark.parametrize("seed", range(4))
def test_counts_agree_with_counters(spark: Any, seed: int) -> None:
    """On arbitrary multisets the counts equal those of Python's Counter."""
    draw = random.Random(seed)
    values = [(k, v) for k in (None, 1, 2) for v in (None, "a", "b")]
    expected, actual = ([draw.choice(values) for _ in range(draw.randrange(30))] for _ in range(2))

    report = compare(spark, expected, actual, examples_max=99)

    lost, extra = Counter(expected) - Counter(actual), Counter(actual) - Counter(expected)
    assert (report.expected_rows, report.actual_rows) == (len(expected), len(actual))
    assert (report.missing, report.unexpected) == (lost.total(), extra.total())
    for side, counter in (("missing", lost), ("unexpected", extra)):
        quoted = {(row["k"], row["v"]): count for example in report.examples for row, count in getattr(example, side)}
        assert quoted == dict(counter)


def test_examples_are_the_first_keys_in_order(spark: Any) -> None:
    """The report quotes a bounded number of keys, smallest first, the same ones whatever the order of the rows."""
    rows = [(k, "a") for k in range(50)]

    reports = [compare(spark, given, [], examples_max=3) for given in (rows, rows[::-1])]

    assert reports[0] == reports[1]
    assert [example.key["k"] for example in reports[0].examples] == [0, 1, 2]
    assert reports[0].missing == 50


def test_a_coarse_key_does_not_flood_the_report(spark: Any) -> None:
    """Many differing rows under one key are counted in full and quoted in part."""
    report = compare(spark, [(1, f"{number:03}") for number in range(40)], [])

    assert report.missing == 40
    assert [row["v"] for row, _ in report.examples[0].missing] == [f"{number:03}" for number in range(10)]


def test_column_order_does_not_matter(spark: Any) -> None:
    """Columns are matched by name."""
    swapped = spark.createDataFrame([("a", 1)], "v string, k int")

    assert compare_multisets(spark.createDataFrame([(1, "a")], SCHEMA), swapped, ["k"]).equal


@pytest.mark.parametrize(
    ("actual_schema", "keys", "problem"),
    [
        ("k bigint, v string", ["k"], "k: expected int, found bigint"),
        ("k int", ["k"], "v: expected string, found none"),
        ("k int, v string, w int", ["k"], "w: expected none, found int"),
        (SCHEMA, ["x"], r"not \['x'\]"),
        (SCHEMA, [], "none was given"),
        ("k int, k int", ["k"], "appears twice"),
    ],
)
def test_what_cannot_be_compared_is_refused(spark: Any, actual_schema: str, keys: list[str], problem: str) -> None:
    """Other columns, other types or unknown keys are an error, not a difference in all rows."""
    with pytest.raises(OracleSchemaError, match=problem):
        compare_multisets(spark.createDataFrame([], SCHEMA), spark.createDataFrame([], actual_schema), keys)


def test_maps_are_refused(spark: Any) -> None:
    """A map has no order, so its rows could not be quoted in one; the error says what to compare instead."""
    frame = spark.createDataFrame([], "k int, v map<string, int>")

    with pytest.raises(OracleSchemaError, match="map_entries"):
        compare_multisets(frame, frame, ["k"])
