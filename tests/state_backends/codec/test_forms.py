"""Type annotations as they stand in snapshots, and which of them old values survive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Optional, Union

import msgpack
import pytest
from hypothesis import given, strategies as st

from state_backends.codec import Compatibility
from state_backends.codec.forms import (
    compatibility,
    converter,
    describe,
    fields_of,
    form_from_state,
    form_of,
    form_to_state,
)

AS_IS, MIGRATED, REFUSED = Compatibility.AS_IS, Compatibility.AFTER_MIGRATION, Compatibility.INCOMPATIBLE


class Inner(NamedTuple):
    """A record inside others."""

    x: int


class Unknown:
    """No registered class."""


def code_of(cls: type) -> int | None:
    return 41 if cls is Inner else None


def form(annotation: Any) -> Any:
    return form_of(annotation, code_of)


ANNOTATIONS: list[tuple[Any, str]] = [
    (int, "int"),
    (None, "None"),
    (Any, "Any"),
    (object, "Any"),
    (Inner, "record of type code 41"),
    (Unknown, "Unknown"),
    (list, "list[Any]"),
    (dict, "dict[Any, Any]"),
    (tuple, "tuple[Any, ...]"),
    (list[int], "list[int]"),
    (dict[str, list[float]], "dict[str, list[float]]"),
    (tuple[int, ...], "tuple[int, ...]"),
    (tuple[int, str], "tuple[int, str]"),
    (tuple[()], "tuple[]"),
    (int | None, "int | None"),
    (Optional[int], "int | None"),  # noqa: UP045
    (Union[str, int], "int | str"),  # noqa: UP007
    (int | Any, "Any"),
    (Annotated[int, "positive"], "int"),
    (Inner | None, "record of type code 41 | None"),
]


@pytest.mark.parametrize(("annotation", "shown"), ANNOTATIONS)
def test_an_annotation_has_a_form(annotation: Any, shown: str) -> None:
    """It is shown as one would write it, and comes back from a file as it was."""
    one = form(annotation)

    assert describe(one) == shown
    assert form_from_state(msgpack.unpackb(msgpack.packb(form_to_state(one)))) == one


def test_the_order_of_alternatives_means_nothing() -> None:
    """A union is a set of types."""
    assert form(int | str | None) == form(Union[None, str, int])  # noqa: UP007


CHANGES: list[tuple[Any, Any, Compatibility]] = [
    (int, int, AS_IS),
    (int, float, MIGRATED),
    (bool, int, MIGRATED),
    (bool, float, MIGRATED),
    (float, int, REFUSED),
    (int, bool, REFUSED),
    (int, str, REFUSED),
    (str, bytes, REFUSED),
    (int, Any, AS_IS),
    (Any, int, REFUSED),
    (int, int | None, AS_IS),
    (int, float | None, MIGRATED),
    (int, int | str, AS_IS),
    (int, float | str, REFUSED),
    (int | None, int, REFUSED),
    (int | None, float | None, MIGRATED),
    (int | str, int | str | None, AS_IS),
    (int | str, float | str, REFUSED),
    (int | str, int, REFUSED),
    (None, int | None, AS_IS),
    (None, int, REFUSED),
    (list[int], list[float], MIGRATED),
    (list[int], list, AS_IS),
    (list, list[int], REFUSED),
    (list[int], list[str], REFUSED),
    (list[int], tuple[int, ...], REFUSED),
    (list[int], dict[int, int], REFUSED),
    (tuple[int, ...], tuple[float, ...], MIGRATED),
    (tuple[int, bool], tuple[float, bool], MIGRATED),
    (tuple[int, bool], tuple[int, ...], MIGRATED),
    (tuple[int, int], tuple[int, ...], AS_IS),
    (tuple[int, int], tuple[int, int, int], REFUSED),
    (tuple[int, ...], tuple[int, int], REFUSED),
    (tuple[()], tuple[int, ...], AS_IS),
    (dict[str, int], dict[str, float], MIGRATED),
    (dict[int, int], dict[float, int], REFUSED),
    (dict[str, int], dict[Any, int], REFUSED),
    (list[dict[str, int | None]], list[dict[str, float | None]], MIGRATED),
    (Inner, Inner, AS_IS),
    (Inner, Inner | None, AS_IS),
    (Inner, Unknown, REFUSED),
    (Unknown, Unknown, AS_IS),
    (int, list[int], REFUSED),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES)
def test_a_change_is_compatible_or_not(old: Any, new: Any, expected: Compatibility) -> None:
    """As the table of the module says."""
    assert compatibility(form(old), form(new)) is expected


scalars = st.sampled_from([int, float, str, bytes, bool, Any, None, Inner])
annotations = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),
        inner.map(lambda one: tuple[one, ...]),
        st.tuples(inner, inner).map(lambda both: tuple[both[0], both[1]]),
        inner.map(lambda one: dict[str, one]),
        inner.map(lambda one: Optional[one]),  # noqa: UP045
    ),
    max_leaves=4,
)


@given(annotations, annotations, annotations)
def test_compatibility_is_an_order(one: Any, other: Any, third: Any) -> None:
    """A form is compatible with itself; what two steps allow, one step allows too, unless alternatives interfere."""
    first, second, last = form(one), form(other), form(third)

    assert compatibility(first, first) is AS_IS
    assert compatibility(first, form(Any)) is AS_IS
    steps = max(compatibility(first, second), compatibility(second, last))
    assert compatibility(first, last) <= steps


VALUES: list[tuple[Any, Any, Any]] = [
    (float, 1, 1.0),
    (float, True, 1.0),
    (float, 2.5, 2.5),
    (int, True, 1),
    (int, 2, 2),
    (float | None, None, None),
    (float | None, 3, 3.0),
    (int | str, True, True),
    (list[float], [1, 2], [1.0, 2.0]),
    (tuple[float, ...], (1, 2), (1.0, 2.0)),
    (tuple[float, int], (1, True), (1.0, 1)),
    (dict[str, float], {"a": 1}, {"a": 1.0}),
    (dict[str, list[float | None]], {"a": [1, None]}, {"a": [1.0, None]}),
    (float, "not as declared", "not as declared"),
    (list[float], "not as declared", "not as declared"),
    (tuple[float, int], (1,), (1,)),
    (dict[str, float], None, None),
]


@pytest.mark.parametrize(("annotation", "old", "new"), VALUES)
def test_values_are_widened(annotation: Any, old: Any, new: Any) -> None:
    """A value becomes one of the new form; what was never of the declared form stays as it is."""
    convert = converter(form(annotation))
    found = old if convert is None else convert(old)

    assert found == new
    assert repr(found) == repr(new)


@pytest.mark.parametrize("annotation", [str, Any, Inner, list[str], tuple[str, bytes], dict[str, str], int | str])
def test_forms_that_nothing_is_widened_to_need_no_conversion(annotation: Any) -> None:
    """So records of them pay nothing."""
    assert converter(form(annotation)) is None


def test_fields_of_classes_inside_functions_are_found() -> None:
    """An annotation that cannot be resolved stands for itself, and the other fields are as they are."""

    @dataclass
    class Local:
        """Refers to itself by a name that only this function knows."""

        count: int
        again: Local | None
        numbers: list[int]

    names = ("count", "again", "numbers")
    assert fields_of(Local, names, code_of) == (
        ("count", "int"),
        ("again", ("other", "Local | None")),
        ("numbers", ("list", "int")),
    )


def test_a_field_without_annotation_may_hold_anything() -> None:
    """Such as those of a plain namedtuple."""
    assert fields_of(Inner, ("x", "y"), code_of) == (("x", "int"), ("y", "any"))
