"""Many cases: those in one test, of which a failure names its own, and those of which a part is quick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product

import pytest


@contextmanager
def case(**named: object) -> Iterator[None]:
    """Around one case of a loop: an error raised inside, or a failed assertion, gets a line with these values."""
    try:
        yield
    except BaseException as problem:
        problem.add_note("in the case " + ", ".join(f"{name}={value!r}" for name, value in named.items()))
        raise


def crossed(*, quick: int, **axes: Iterable[object]) -> pytest.MarkDecorator:
    """Every combination of the values of these arguments is a test; one out of so many is quick, the others are slow.

    As long as ``quick`` is no more than the number of values of any argument, every value is in some quick test, and
    with three arguments any two values of different ones meet there.
    """
    values = [list(axis) for axis in axes.values()]
    assert quick <= min(map(len, values)), "some value would be in no quick test"
    cells = []
    for places in product(*map(range, map(len, values))):
        marks = () if sum(places) % quick == 0 else pytest.mark.slow
        cells.append(pytest.param(*(axis[place] for axis, place in zip(values, places, strict=True)), marks=marks))
    return pytest.mark.parametrize(tuple(axes), cells)
