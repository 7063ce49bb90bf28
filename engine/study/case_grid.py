"""The cases of a sweep: each is one set of arguments of the study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from numbers import Integral, Rational, Real
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.elements.laws import Law

Arguments = Mapping[str, Any]

RESERVED = ("status", "error")
"""Columns of a row that say how its case ended."""


def grid(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of the values, the last name varying fastest. A single value, text included, is the same in all
    cases."""
    if not values:
        return checked([])
    columns = [_several(name, value) for name, value in values.items()]
    return checked([dict(zip(values, combination, strict=True)) for combination in product(*columns)])


def _several(name: str, value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return [value]
    found = list(value)
    if not found:
        raise ConfigurationError(f"sweep: {name} has no values; give at least one")
    return found


def checked(cases: Sequence[Arguments]) -> list[dict[str, Any]]:
    """The cases, each once. Raises :class:`ConfigurationError` when there are none, their names differ, a value is not
    plain, or two are equal."""
    if not cases:
        raise ConfigurationError("sweep: there is no case; give values by name, such as seed=range(20), or cases=[...]")
    found = [{name: python_number(value) for name, value in case.items()} for case in cases]
    names, seen = set(found[0]), dict[str, int]()
    for number, case in enumerate(found):
        if set(case) != names:
            raise ConfigurationError(
                f"sweep: case {number} has the names {', '.join(sorted(case))}, case 0 {', '.join(sorted(names))};"
                " give all cases the same names"
            )
        first = seen.setdefault(key_of(case), number)
        if first != number:
            raise ConfigurationError(f"sweep: cases {first} and {number} are the same: {describe(case)}; give it once")
    for name in names:
        if name in RESERVED:
            raise ConfigurationError(f"sweep: {name!r} is a column of the results; rename this argument")
    return found


def python_number(value: Any) -> Any:
    """A number of NumPy as one of Python; anything else as it is."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    # A fraction would lose digits.
    return float(value) if isinstance(value, Real) and not isinstance(value, Rational) else value


def plain(arguments: Arguments) -> dict[str, Any]:
    """The arguments as values that a file can hold: laws become their text."""
    return {name: _plain(name, value) for name, value in arguments.items()}


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Law) and not isinstance(value, type):
        return str(value)
    raise ConfigurationError(
        f"sweep: {name} is {value!r} of type {type(value).__name__}; an argument is a text, a number, True, False, None"
        " or a law, so that a row can name it: give a name, and choose by it in the study"
    )


def key_of(arguments: Arguments) -> str:
    """One text for equal arguments; a column of a file may hold 1 as 1.0."""
    whole = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in plain(arguments).items()
    }
    return json.dumps(whole, sort_keys=True)


def describe(arguments: Arguments) -> str:
    """The arguments as they are typed."""
    return ", ".join(f"{name}={value!r}" for name, value in plain(arguments).items()) or "no arguments"
