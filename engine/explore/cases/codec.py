"""Convert a case and its parts to plain data and back, for tokens and JSON files.

Only values that differ from the default are written, so that a small case stays small. Reading checks names as strictly
as the command line does: an unknown name is an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.explore.cases.case import SCHEDULERS, Case
from engine.explore.cases.savepoint_plans import parse_savepoint
from engine.faults.fault import FaultMix, parse_fault
from state_backends.base import (
    CorruptStateError,
    below,
    check_shape,
    fields,
    list_of,
    map_of,
    of_type,
    optional,
    row,
    text,
    whole,
)

SETTINGS = map_of(text, of_type("a number, a text, true, false or nothing", int, str, bool, type(None)))
"""The shape of settings by name."""

CASE = fields(
    {},
    {
        "seed": text,
        "config": SETTINGS,
        "faults": list_of(text),
        "mix": fields({"most": whole, "per_million": map_of(text, whole)}),
        "dropped": map_of(text, list_of(row(whole, whole))),
        "checkpoints": optional(list_of(whole)),
        "savepoints": list_of(text),
        "scheduler": text,
        "schedule": list_of(row(whole, whole)),
        "preemptions": below(1_000),
    },
)
"""The shape of a case."""

_NAMES = tuple(field.name for field in dataclasses.fields(Case))
_DEFAULT = Case()


def case_to_plain(case: Case) -> dict[str, Any]:
    """The case in lists, dicts, texts and numbers (``plain_to_case`` reads it back)."""
    plain: dict[str, Any] = {}
    for name in _NAMES:
        value = getattr(case, name)
        if value != getattr(_DEFAULT, name):
            plain[name] = _FORMS[name][0](value) if name in _FORMS else value
    return plain


_FORMS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "config": (dict, dict),
    "faults": (lambda faults: list(map(str, faults)), lambda texts: tuple(map(parse_fault, texts))),
    "mix": (
        lambda mix: {"most": mix.most, "per_million": dict(mix.per_million)},
        lambda plain: FaultMix(dict(plain["per_million"]), plain["most"]),
    ),
    "dropped": (
        lambda dropped: {split: [list(one) for one in ranges] for split, ranges in dropped.items()},
        lambda plain: {split: tuple((first, end) for first, end in ranges) for split, ranges in plain.items()},
    ),
    "checkpoints": (list, lambda plain: None if plain is None else tuple(plain)),
    "savepoints": (lambda orders: list(map(str, orders)), lambda texts: tuple(map(parse_savepoint, texts))),
    "schedule": (lambda schedule: [list(draw) for draw in sorted(schedule.items())], dict),
}
"""By field name: how to make the field plain and how to read it back. All other fields are plain already."""


def plain_to_case(plain: Mapping[str, Any]) -> Case:
    """The case that :func:`case_to_plain` wrote. Raises :class:`ConfigurationError` when the data is not a case."""
    try:
        check_shape(plain, CASE, "this is no case", "case")
    except CorruptStateError as error:
        raise ConfigurationError(f"this is no case: {error.what}") from error
    unknown = sorted(str(name) for name in plain if name not in _NAMES)
    if unknown:
        raise ConfigurationError(f"a case has no {unknown[0]!r}; it has {', '.join(_NAMES)}")
    case = Case(**{name: _FORMS[name][1](value) if name in _FORMS else value for name, value in plain.items()})
    if case.scheduler not in SCHEDULERS:
        raise ConfigurationError(f"there is no scheduler {case.scheduler!r}; there are {', '.join(SCHEDULERS)}")
    return case
