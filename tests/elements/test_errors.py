"""Errors say what, where, why and how to fix, and carry the exit code of their kind."""

from __future__ import annotations

import inspect

import pytest

from engine.elements import errors
from engine.elements.errors import NO_RECORD, MalformedRecordError, UserFunctionError, WeirError, shorten

KINDS = [
    kind
    for _, kind in sorted(inspect.getmembers(errors, inspect.isclass))
    if issubclass(kind, WeirError) and kind is not WeirError
]


def test_every_kind_has_an_exit_code_of_its_own() -> None:
    """A script can tell the kinds apart by exit code, and none is mistaken for a verdict."""
    codes = [kind.exit_code for kind in KINDS]

    assert len(KINDS) >= 10
    assert len(set(codes)) == len(codes)
    verdicts = (errors.EXIT_VALID, errors.EXIT_VIOLATED, errors.EXIT_UNKNOWN)
    assert not set(codes) & set(verdicts)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_says_what_it_is_for(kind: type[WeirError]) -> None:
    """Each error class documents when it is raised."""
    assert kind.__doc__
    assert kind.__doc__ != WeirError.__doc__


def test_user_function_error_names_everything() -> None:
    """The operator, the function, the record, the attempt and the cause are in the message."""
    error = UserFunctionError("parse", "map function", {"id": 7}, 3, ValueError("no number"))

    for part in ("map function", "'parse'", "ValueError: no number", "{'id': 7}", "attempt 3", "fix"):
        assert part in str(error)
    assert (error.operator, error.record, error.attempt) == ("parse", {"id": 7}, 3)


def test_malformed_record_error_can_be_clicked_on() -> None:
    """File and line come first, in the form editors understand, then the content and what may be done."""
    error = MalformedRecordError("in/a.csv", 12, "x;y", "3 columns expected, 2 found")

    assert str(error).startswith("in/a.csv:12: 3 columns expected, 2 found")
    assert "'x;y'" in str(error)
    assert "on_malformed='skip'" in str(error)


@pytest.mark.parametrize(("length", "shown"), [(10, 12), (198, 200), (199, None), (10_000, None)])
def test_long_records_are_shortened(length: int, shown: int | None) -> None:
    """A record of any size gives a readable message, and the reader learns how much is missing."""
    text = shorten("x" * length)

    if shown is None:
        assert text == f"{repr('x' * length)[:200]}… ({length + 2} characters)"
    else:
        assert text == repr("x" * length)
        assert len(text) == shown


class Unprintable:
    def __repr__(self) -> str:
        raise ZeroDivisionError("one over nothing")


def test_a_value_that_cannot_be_printed_hides_no_error() -> None:
    """Its type is told. Python prints no whole number of thousands of digits."""
    assert shorten(Unprintable()) == "a value of type Unprintable that cannot be shown (one over nothing)"
    assert shorten(10**5000).startswith("a value of type int that cannot be shown (Exceeds the limit")


def test_where_no_record_is_to_blame_none_is_named() -> None:
    """Such as in a snapshot; nor is it advised to leave records out."""
    error = UserFunctionError("held", "snapshot_state of function", NO_RECORD, 1, ValueError("none"))
    assert "record" not in str(error)
    assert "record  None" in str(UserFunctionError("held", "map function", None, 1, ValueError("none")))
