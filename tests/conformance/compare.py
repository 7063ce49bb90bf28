"""Compares what a vector expects with what was observed: strictly, field by field; at least one field is compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Vector = dict[str, Any]


class MalformedVector(Exception):
    """A vector is not of the documented format: a field is missing or unknown."""


def plain(value: object) -> Any:
    """``value`` in the form in which it would come out of a JSON file."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def same(expected: Any, observed: Any) -> bool:
    """Equality of plain values. Unlike Python's, it tells ``True`` from 1."""
    if isinstance(expected, bool) or isinstance(observed, bool):
        return expected is observed
    if isinstance(expected, dict) and isinstance(observed, dict):
        return expected.keys() == observed.keys() and all(same(expected[key], observed[key]) for key in expected)
    if isinstance(expected, list) and isinstance(observed, list):
        return len(expected) == len(observed) and all(map(same, expected, observed))
    return bool(expected == observed)


def unordered(values: Any) -> Any:
    """A list as a multiset: in an order that depends on its content only. Anything else as it is."""
    return sorted(values, key=repr) if isinstance(values, list) else values


class Comparison:
    """The mismatches of one vector, and the number of compared fields."""

    def __init__(self) -> None:
        self.mismatches: list[str] = []
        self.compared = 0

    def field(self, name: str, expected: Any, observed: object, *, as_set: bool = False) -> None:
        """Compare one field. ``as_set``: the order of the list does not count."""
        self.compared += 1
        expected, observed = plain(expected), plain(observed)
        if as_set:
            expected, observed = unordered(expected), unordered(observed)
        if not same(expected, observed):
            self.mismatches.append(f"{name} expected {expected!r} observed {observed!r}")

    def fields(self, expect: Mapping[str, Any], observed: Mapping[str, object], prefix: str = "") -> None:
        """Compare every field of ``expect``; each must be one that could be observed."""
        check_fields(expect, observed, f"{prefix}expect" if prefix else "expect")
        for name, expected in expect.items():
            self.field(prefix + name, expected, observed[name])

    def finish(self) -> list[str]:
        """The mismatches; a vector without a compared field is malformed."""
        if not self.compared:
            raise MalformedVector("nothing is expected, so nothing was compared")
        return self.mismatches


def check_fields(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse fields that would not be compared."""
    unknown = sorted(name for name in given if name not in known)
    if unknown:
        raise MalformedVector(f"{where} has unknown fields: {', '.join(unknown)}")


def steps_with_expectations(steps: Sequence[Vector], per_step: Sequence[Vector]) -> list[tuple[int, Vector, Vector]]:
    """Position, operation and expectation of each step; there are as many operations as expectations."""
    if len(steps) != len(per_step):
        raise MalformedVector(f"{len(steps)} operations have {len(per_step)} expectations")
    return [(position, step, wanted) for position, (step, wanted) in enumerate(zip(steps, per_step, strict=True))]
