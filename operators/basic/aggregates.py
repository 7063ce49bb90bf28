"""Ready-made aggregates whose results are exact and do not depend on the order of arrival.

Sums and means take ints only. A sum of floats is rounded at every step, so the result would depend on the order of
records, and with it on schedule, parallelism and recovery. Scale to ints (cents, milliseconds) instead.
``value_of(record)`` may be ``None``: all aggregates but ``count`` skip such records, as in SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from operators.basic.functions import AggregateFunction

ValueOf = Callable[[Any], Any]


def _identity(value: Any) -> Any:
    return value


def _exact_int(value: Any, name: str) -> int:
    if type(value) is not int:
        raise TypeError(
            f"{name}() adds ints only, got {type(value).__name__} {value!r}: sums of floats depend on the "
            "order of arrival. Scale to ints first, or write an AggregateFunction of your own"
        )
    return value


def count() -> AggregateFunction:
    """The number of records."""
    return AggregateFunction(lambda: 0, lambda acc, _: acc + 1, _identity, lambda a, b: a + b, _count_all)


def _count_all(counts: Counter[Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
    del values
    counts.update(keys)


def total(value_of: ValueOf | None = None) -> AggregateFunction:
    """The sum of the ints ``value_of(record)``; 0 when there are none. ``TypeError`` on other types."""
    value_of = value_of or _identity

    def add(acc: int, record: Any) -> int:
        value = value_of(record)
        return acc if value is None else acc + _exact_int(value, "total")

    return AggregateFunction(lambda: 0, add, _identity, lambda a, b: a + b)


def mean(value_of: ValueOf | None = None) -> AggregateFunction:
    """The mean of the ints ``value_of(record)``, correctly rounded; ``None`` when there are none."""
    value_of = value_of or _identity

    def add(acc: tuple[int, int], record: Any) -> tuple[int, int]:
        value = value_of(record)
        return acc if value is None else (acc[0] + _exact_int(value, "mean"), acc[1] + 1)

    # int / int is correctly rounded for any size, so equal sums and counts give equal bits.
    return AggregateFunction(
        lambda: (0, 0), add, lambda acc: acc[0] / acc[1] if acc[1] else None, lambda a, b: (a[0] + b[0], a[1] + b[1])
    )


def _extreme(choose: Callable[[Any, Any], Any], value_of: ValueOf | None) -> AggregateFunction:
    value_of = value_of or _identity

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return (choose(a[0], b[0]),) if a and b else a or b

    def add(acc: tuple[Any, ...], record: Any) -> tuple[Any, ...]:
        value = value_of(record)
        return acc if value is None else merge(acc, (value,))

    # The accumulator is () or (extreme,), for ``None`` is no accumulator.
    return AggregateFunction(lambda: (), add, lambda acc: acc[0] if acc else None, merge)


def minimum(value_of: ValueOf | None = None) -> AggregateFunction:
    """The least ``value_of(record)``; ``None`` when there are none."""
    return _extreme(min, value_of)


def maximum(value_of: ValueOf | None = None) -> AggregateFunction:
    """The greatest ``value_of(record)``; ``None`` when there are none."""
    return _extreme(max, value_of)


def combined(**aggregates: AggregateFunction) -> AggregateFunction:
    """Several aggregates of the same records in one pass: the result is a dict with their names as keys."""
    if not aggregates:
        raise ValueError("combined() needs at least one aggregate: combined(flights=count(), ...)")
    names = tuple(aggregates)
    parts = tuple(aggregates.values())
    adders = tuple(part.add for part in parts)

    def add(acc: tuple[Any, ...], record: Any) -> tuple[Any, ...]:
        return tuple([adder(part, record) for adder, part in zip(adders, acc, strict=True)])

    def get_result(acc: tuple[Any, ...]) -> dict[str, Any]:
        return {name: part.get_result(one) for name, part, one in zip(names, parts, acc, strict=True)}

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([_merge_of(part)(x, y) for part, x, y in zip(parts, a, b, strict=True)])

    return AggregateFunction(
        lambda: tuple([part.create() for part in parts]),
        add,
        get_result,
        merge if all(part.merge is not None for part in parts) else None,
    )


def _merge_of(part: AggregateFunction) -> Callable[[Any, Any], Any]:
    assert part.merge is not None, part
    return part.merge
