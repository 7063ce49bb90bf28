"""Shapes name the place of the first value that is another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from state_backends.base import CorruptStateError, Shape, check_shape, fields, flag, list_of, row, text, whole

_POINT = row(whole, whole)
_SHAPE = fields({"name": text, "points": list_of(_POINT)}, {"counts": list_of(whole), "open": flag})


@pytest.mark.parametrize(
    ("value", "where", "expected"),
    [
        ({"name": "a"}, "it", "a map with 'points'"),
        ({"name": 1, "points": []}, "it['name']", "a text"),
        ({"name": "a", "points": [[0, 1], [2, -1]]}, "it['points'][1][1]", "a number of at least 0"),
        ({"name": "a", "points": [[0, 1], [2]]}, "it['points'][1]", "a list of 2 values"),
        ({"name": "a", "points": [], "counts": [1, True]}, "it['counts'][1]", "a number of at least 0"),
        ({"name": "a", "points": [], "counts": [-1, 2]}, "it['counts'][0]", "a number of at least 0"),
        ({"name": "a", "points": [], "open": 0}, "it['open']", "true or false"),
    ],
)
def test_an_error_says_where_a_value_is_another_one(value: Any, where: str, expected: str) -> None:
    """Also deep inside, and for numbers, which are looked at together."""
    with pytest.raises(CorruptStateError) as refused:
        check_shape(value, _SHAPE, "file", "it")

    assert f"{where} should be {expected}, and is " in str(refused.value)


@pytest.mark.parametrize("shape", [list_of(whole), list_of(_POINT), row(), _SHAPE])
def test_what_has_the_shape_passes(shape: Shape) -> None:
    """Empty lists, unknown keys of a map and zeros included."""
    value: Any = [] if shape is not _SHAPE else {"name": "", "points": [(0, 0)], "counts": [], "more": object()}

    check_shape(value, shape, "file", "it")


@pytest.mark.parametrize("nest", [list_of, row, lambda inner: fields({"inner": inner})], ids=["list", "row", "fields"])
def test_a_value_deep_inside_is_looked_at_once(nest: Callable[[Shape], Shape]) -> None:
    """A damaged file of a hundred bytes must not hang its reader: the place is told without a second look."""
    looks = 0

    def leaf(value: Any) -> None:
        nonlocal looks
        looks += 1
        text(value)

    shape: Shape = leaf
    value: Any = 5
    for _ in range(30):
        shape, value = nest(shape), {"inner": value} if nest not in (list_of, row) else [value]
    with pytest.raises(CorruptStateError, match="should be a text, and is 5"):
        check_shape(value, shape, "file", "it")
    assert looks == 1
