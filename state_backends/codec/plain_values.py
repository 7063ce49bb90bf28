"""State values as JSON: what JSON has stays as it is, everything else says what it is.

A ``{"$kind": …}`` stands for a value that JSON does not have: ``$tuple``, ``$bytes`` (hexadecimal), ``$float``
(``nan``, ``inf``), ``$dict`` (pairs, when a key is no text), ``$type`` (a registered type, as its registration
writes it) and, for the built-in ones, ``$date``, ``$datetime``, ``$timedelta``, ``$decimal``, ``$time``.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from state_backends.base import StateSchemaError
from state_backends.codec.encoding import StateCodec
from state_backends.codec.registry import TypeRegistry, type_mark


@dataclass(frozen=True, slots=True)
class UnregisteredValue:
    """A value of a type that only the job's program knows, as it stands in the file."""

    code: int
    version: int
    state: Any

    def __repr__(self) -> str:
        return f"<type {self.code} version {self.version}: {self.state!r}>"


class InspectingRegistry(TypeRegistry):
    """Reads built-in types, and takes those of a job's program as they are: looking needs no program."""

    def check_code(self, code: int) -> None:
        """Take every code: the types of a newer Weir are shown, too."""

    def restore(self, code: int, version: int, state: Any) -> Any:
        """The object, or an :class:`UnregisteredValue`."""
        try:
            return super().restore(code, version, state)
        except StateSchemaError:
            return UnregisteredValue(code, version, state)


class InspectingCodec(StateCodec):
    """Decodes whatever a job stored, and writes it again as it was."""

    def _pack_special(self, value: Any) -> Any:
        if type(value) is UnregisteredValue:
            return [type_mark(value.code, value.version), value.state]
        return super()._pack_special(value)


def inspecting_codec() -> StateCodec:
    """A codec that decodes whatever a job stored, and encodes it to the same bytes."""
    return InspectingCodec(InspectingRegistry())


def plain(value: Any) -> Any:
    """A state value as a JSON-able one."""
    # Exactly these types come out of a codec: it writes no subclasses.
    convert = _PLAIN.get(type(value))
    assert convert is not None, f"state files hold no {type(value).__name__}"
    return convert(value)


def _plain_float(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _plain_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: plain(one) for key, one in value.items()}
    return {"$dict": [[plain(key), plain(one)] for key, one in value.items()]}


def _plain_unregistered(value: UnregisteredValue) -> dict[str, Any]:
    return {"$type": value.code, "version": value.version, "state": plain(value.state)}


_PLAIN: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((type(None), bool, int, str), lambda value: value),
    float: _plain_float,
    bytes: lambda value: {"$bytes": value.hex()},
    list: lambda value: [plain(one) for one in value],
    tuple: lambda value: {"$tuple": [plain(one) for one in value]},
    dict: _plain_dict,
    UnregisteredValue: _plain_unregistered,
    datetime.datetime: lambda value: {"$datetime": value.isoformat()},
    datetime.date: lambda value: {"$date": value.isoformat()},
    datetime.timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    decimal.Decimal: lambda value: {"$decimal": str(value)},
    datetime.time: lambda value: {"$time": value.isoformat()},
}


def shown(value: Any) -> str:
    """A JSON-able value as Python would write the original, for people."""
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if not isinstance(value, dict):
        return repr(value)
    kind = next(iter(value), "")
    if kind in _SHOWN:
        return _SHOWN[kind](value)
    return "{" + ", ".join(f"{key!r}: {shown(one)}" for key, one in value.items()) + "}"


def _shown_tuple(value: Mapping[str, Any]) -> str:
    elements = value["$tuple"]
    return f"({', '.join(map(shown, elements))}{',' if len(elements) == 1 else ''})"


def _shown_dict(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{shown(key)}: {shown(one)}" for key, one in value["$dict"]) + "}"


_SHOWN: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "$tuple": _shown_tuple,
    "$dict": _shown_dict,
    "$bytes": lambda value: repr(bytes.fromhex(value["$bytes"])),
    "$float": lambda value: str(value["$float"]),
    "$decimal": lambda value: str(value["$decimal"]),
    "$date": lambda value: str(value["$date"]),
    "$datetime": lambda value: str(value["$datetime"]),
    "$time": lambda value: str(value["$time"]),
    "$timedelta": lambda value: str(datetime.timedelta(*value["$timedelta"])),
    "$type": lambda value: f"<type {value['$type']} version {value['version']}: {shown(value['state'])}>",
}
