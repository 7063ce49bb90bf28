"""Simple functions in C: the same results and errors; anything less simple stays a function of the user."""

from __future__ import annotations

import operator
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from engine.elements.simple_functions import in_c, raised_by


def _first(record: Any) -> Any:
    """With a docstring."""
    return record[0]


def _sum(before: Any, value: Any) -> Any:
    return before + value


def _generator(record: Any) -> Iterator[Any]:
    yield record[0]


async def _coroutine(record: Any) -> Any:
    return record[0]


async def _async_generator(record: Any) -> AsyncIterator[Any]:
    yield record[0]


def _enclosed(at: int) -> Callable[[Any], Any]:
    return lambda record: record[at]


def _sum_in_place(before: Any, value: Any) -> Any:
    before += value
    return before


class Strange(tuple[Any, ...]):
    """A record with items and attributes of its own."""

    kind = "strange"

    def __getitem__(self, at: Any) -> Any:
        if at == "stop":
            raise StopIteration
        return ("item", at)

    def __add__(self, other: Any) -> Any:
        return ("sum", other)


RECORDS: list[Any] = [(), (1,), (1, 2, 3), [4, 5], {"key": 6, 0: 7}, "text", None, 8, 3 + 4j, Strange((9, 10)), b"b"]

ITEMS_AND_ATTRIBUTES: list[Callable[[Any], Any]] = [
    lambda record: record[0],
    lambda record: record[1],
    lambda record: record[-1],
    lambda record: record["key"],
    lambda record: record["stop"],
    lambda record: record[1, 2],
    lambda record: record.real,
    lambda record: record.kind,
    lambda record: record.no_such_attribute,
    _first,
]


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """The result, or the type and text of the error."""
    try:
        return ("result", function(*arguments))
    except Exception as error:
        return (type(error), str(error))


@pytest.mark.parametrize("function", ITEMS_AND_ATTRIBUTES)
def test_an_item_or_attribute_is_taken_in_c(function: Callable[[Any], Any]) -> None:
    """The function in C gives the same for all records."""
    fast = in_c(function)

    assert isinstance(fast, (operator.itemgetter, operator.attrgetter))
    assert [outcome(fast, record) for record in RECORDS] == [outcome(function, record) for record in RECORDS]


@pytest.mark.parametrize("function", [_sum, lambda left, right: left + right])
def test_a_sum_is_added_in_c(function: Callable[[Any, Any], Any]) -> None:
    """The function in C gives the same for all pairs."""
    pairs = [(one, other) for one in RECORDS for other in RECORDS]

    assert in_c(function) is operator.add
    assert [outcome(operator.add, *pair) for pair in pairs] == [outcome(function, *pair) for pair in pairs]


@pytest.mark.parametrize(
    "function",
    [
        lambda *record: record[0],
        lambda record, *others: record[0],
        lambda record, **others: record[0],
        lambda record, other=1: record[0],
        lambda record, *, other=1: record[0],
        lambda record: record[0][1],
        lambda record: record[1:2],
        lambda record: record.real.real,
        lambda record: record + record,
        lambda left, right: right + left,
        lambda left, right: left - right,
        lambda left, right, more=0: left + right,
        lambda *sums: sums[0] + sums[1],
        _enclosed(0),
        _sum_in_place,
        _generator,
        _coroutine,
        _async_generator,
        operator.neg,
        int,
        Strange,
    ],
)
def test_any_other_function_stays_itself(function: Callable[..., Any]) -> None:
    """Also if its code looks the same, and only its arguments differ."""
    assert in_c(function) is function


def test_the_function_of_the_user_comes_back_into_the_traceback() -> None:
    """An error shows the line of the user's file."""
    with pytest.raises(IndexError) as caught:
        in_c(_first)(())

    error = raised_by(_first, ((),), caught.value)

    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["raised_by", "_first"]
    assert raised_by(_first, ((1,),), caught.value) is caught.value
