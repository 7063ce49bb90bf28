"""Shapes: the required form of plain data read from files. It is checked before the data is used.

A checksum proves that bytes are as they were written. It does not prove that this program wrote them: a file may come
from a faulty program, or be made by hand. So each format has a shape, beside the function that writes its plain form.
If data does not have the shape, the error names the place.

A shape is a function that takes a value and raises :class:`_Misfit` when the value is another one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from operator import call, length_hint
from typing import Any

from state_backends.base.errors import CorruptStateError, StateBackendError

Shape = Callable[[Any], None]

_MAX_SHOWN_CHARS = 60


class _Misfit(Exception):
    def __init__(self, expected: str, found: Any) -> None:
        super().__init__(expected)
        self.expected, self.found = expected, found
        self.where: list[str] = []


def check_shape(value: Any, shape: Shape, path: str, what: str) -> None:
    """Refuse a value that does not have a shape.

    :param path: how errors name the file
    :param what: how errors name the value in it
    :raises CorruptStateError: naming the place inside the value, what belongs there, and what is there
    """
    try:
        shape(value)
    except _Misfit as misfit:
        shown = repr(misfit.found)
        shown = shown if len(shown) <= _MAX_SHOWN_CHARS else f"{shown[:_MAX_SHOWN_CHARS]}…"
        where = "".join([what, *reversed(misfit.where)])
        raise CorruptStateError(path, f"malformed: {where} should be {misfit.expected}, and is {shown}") from None


def anything(_value: Any) -> None:
    """Any value: one of the user's, which only the user's program knows."""


def nothing(value: Any) -> None:
    """``None``."""
    if value is not None:
        raise _Misfit("nothing", value)


def whole(value: Any) -> None:
    """A number of at least 0."""
    if type(value) is not int or value < 0:
        raise _Misfit("a number of at least 0", value)


def positive(value: Any) -> None:
    """A number of at least 1."""
    if type(value) is not int or value < 1:
        raise _Misfit("a number of at least 1", value)


def below(end: int) -> Shape:
    """A number of at least 0 that is smaller than another one."""

    def check(value: Any) -> None:
        if type(value) is not int or not 0 <= value < end:
            raise _Misfit(f"a number of at least 0, below {end}", value)

    return check


def of_type(expected: str, *kinds: type) -> Shape:
    """A value of exactly one of some types; ``expected`` is how errors say so."""

    def check(value: Any) -> None:
        if type(value) not in kinds:
            raise _Misfit(expected, value)

    return check


number = of_type("a number", int)
text = of_type("a text", str)
flag = of_type("true or false", bool)
binary = of_type("bytes", bytes)
values = of_type("a list", list)
"""A list of the user's values."""


def path_below(value: Any) -> None:
    """The name of something below a directory that is known elsewhere, or ``""`` for the directory itself: a file may
    be renamed or deleted by it."""
    if type(value) is not str or value.startswith("/") or "\0" in value or ".." in value.split("/"):
        raise _Misfit("a path that does not lead out of its directory", value)


def such_that(expected: str, shape: Shape, holds: Callable[[Any], bool]) -> Shape:
    """What has a shape and for which something holds besides; ``expected`` is how errors say so."""

    def check(value: Any) -> None:
        shape(value)
        if not holds(value):
            raise _Misfit(expected, value)

    return check


def one_of(*values: str) -> Shape:
    """One of some texts."""

    def check(value: Any) -> None:
        if type(value) is not str or value not in values:
            raise _Misfit(f"one of {', '.join(values)}", value)

    return check


_NUMBERS = {int}
"""The types of whole numbers, which are seen together to be right."""


def _last_taken(rest: Iterator[Any], size: int) -> int:
    """Where the value stood that an iterator gave last: it knows how many are left. So the shapes are called without a
    loop in Python, and nothing is spent on where a value is until one of them does not fit."""
    return size - length_hint(rest) - 1


def optional(shape: Shape) -> Shape:
    """``None``, or what has the shape."""

    def check(value: Any) -> None:
        if value is not None:
            shape(value)

    return check


def list_of(shape: Shape) -> Shape:
    """A list in which everything has one shape."""
    are_numbers = shape is whole

    def check(value: Any) -> None:
        if type(value) not in (list, tuple):
            raise _Misfit("a list", value)
        if are_numbers and set(map(type, value)) == _NUMBERS and min(value) >= 0:
            return
        rest = iter(value)
        try:
            any(map(shape, rest))
        except _Misfit as misfit:
            misfit.where.append(f"[{_last_taken(rest, len(value))}]")
            raise

    return check


def row(*shapes: Shape, more: Collection[Shape] = ()) -> Shape:
    """A list of so many values, each of its own shape.

    :param more: of values that may follow, and are absent in what older programs wrote
    """
    least, most, known = len(shapes), len(shapes) + len(more), (*shapes, *more)
    are_numbers = not more and set(shapes) == {whole}

    def check(value: Any) -> None:
        if type(value) not in (list, tuple) or not least <= len(value) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise _Misfit(f"a list of {wanted} values", value)
        if are_numbers and set(map(type, value)) == _NUMBERS and min(value) >= 0:
            return
        rest = iter(value)
        try:
            any(map(call, known, rest))
        except _Misfit as misfit:
            misfit.where.append(f"[{_last_taken(rest, len(value))}]")
            raise

    return check


def tagged(rows: Mapping[str, Shape]) -> Shape:
    """A list whose first value is a text that says which row follows. Texts that are not known pass: their reader
    says that a newer program wrote them."""

    def check(value: Any) -> None:
        if type(value) not in (list, tuple) or not value or type(value[0]) is not str:
            raise _Misfit("a list that begins with its kind", value)
        shape = rows.get(value[0])
        if shape is not None:
            shape(value[1:])

    return check


def fields(required: Mapping[str, Shape], more: Mapping[str, Shape] | None = None) -> Shape:
    """A map with these keys and perhaps others.

    :param more: of keys that may be absent
    """
    known = {**required, **(more or {})}
    names = required.keys()

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise _Misfit("a map", value)
        if not names <= value.keys():
            name = next(name for name in required if name not in value)
            raise _Misfit(f"a map with {name!r}", value)
        rest = iter(value.values())
        try:
            any(map(call, map(known.get, value, repeat(anything)), rest))
        except _Misfit as misfit:
            misfit.where.append(f"[{list(value)[_last_taken(rest, len(value))]!r}]")
            raise

    return check


def map_of(key: Shape, value: Shape) -> Shape:
    """A map in which all keys have one shape, and all values another."""

    def check(mapping: Any) -> None:
        if type(mapping) is not dict:
            raise _Misfit("a map", mapping)
        name = None
        try:
            for name, one in mapping.items():
                key(name)
                value(one)
        except _Misfit as misfit:
            misfit.where.append(f"[{name!r}]")
            raise

    return check


@contextmanager
def as_written(path: str) -> Iterator[None]:
    """What is read inside is as this program writes it. Whatever the reader stumbles over is damage to the file.

    :param path: how errors name the file
    :raises CorruptStateError: in place of the error of a reader that found another kind of value than it expected
    """
    try:
        yield
    except StateBackendError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, zlib.error) as problem:
        raise CorruptStateError(path, f"malformed: {type(problem).__name__}: {problem}") from problem
