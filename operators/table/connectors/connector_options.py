"""Options of tables: declared in one place with type, default and meaning, and parsed from the user's values.

Rules
-----
* Values are texts, as in the ``WITH`` clause of a ``CREATE TABLE``, or Python values of the option's own type.
* All errors in the options of a table are reported at once: unknown options (with the probable intended one), invalid
  values, missing required options.
* Durations are ``500 ms``, ``30 s``, ``1 min``, ``2 h``, ``1 d``; sizes are ``64 kb``, ``128 mb``, ``1 gb``, in powers
  of 1024; lists are separated by ``;`` or ``,`` (Flink: ``TimeUtils``, ``MemorySize``, ``ConfigOptions``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.elements.errors import ConfigurationError, shorten
from engine.elements.suggestions import nearest, neighbours

Kind = Literal["text", "boolean", "number", "duration", "size", "list", "choice", "object"]

_DURATION_MS = {
    "ms": 1, "milli": 1, "millis": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000, "m": 60_000,
    "min": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_SIZE_BYTES = {"": 1, "b": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30,
               "gb": 1 << 30}  # fmt: skip
_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_QUANTITY = re.compile(r"\s*(\d+)\s*([a-zA-Z]*)\s*")


class OptionError(ValueError):
    """A value that its option does not take; the message names the valid values."""


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """One option of a table.

    ``key``       its name;
    ``kind``      its type: ``duration`` is read as ms, ``size`` as bytes, ``object`` is any Python object;
    ``meaning``   a sentence for the reference;
    ``default``   the value when it is not given, already of the kind's type;
    ``choices``   the allowed values, if it is a ``choice``;
    ``required``  whether it must be given;
    ``least``     the least value of a number.
    """

    key: str
    kind: Kind
    meaning: str
    default: Any = None
    choices: tuple[str, ...] = ()
    required: bool = False
    least: int = 0

    def parse(self, value: object) -> Any:
        """The value of the option. Raises ``OptionError``."""
        if self.kind == "choice":
            return self._choice(value)
        if self.kind == "number":
            return _number(value, self.least)
        return _PARSERS[self.kind](value)

    def _choice(self, value: object) -> str:
        text = value.strip().lower() if isinstance(value, str) else value
        if text not in self.choices:
            close = nearest(str(text), self.choices)
            hint = f"; did you mean {close!r}?" if close else ""
            raise OptionError(f"takes {' or '.join(map(repr, self.choices))}{hint}")
        assert isinstance(text, str)
        return text

    def described(self) -> str:
        """A line for the reference."""
        default = "required" if self.required else f"default {_shown(self.kind, self.default)}"
        kind = " or ".join(self.choices) if self.choices else self.kind
        return f"{self.key} ({kind}, {default}): {self.meaning}"


def _shown(kind: Kind, value: Any) -> str:
    if value is None:
        return "none"
    if kind == "boolean":
        return str(value).lower()
    units = {"duration": (("min", 60_000), ("s", 1_000)), "size": (("mb", 1 << 20), ("kb", 1 << 10))}.get(kind, ())
    for unit, factor in units:
        if value and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} ms" if kind == "duration" else str(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise OptionError("takes a text that is not empty")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else None
    if text not in ("true", "false"):
        raise OptionError("takes 'true' or 'false'")
    return text == "true"


def _number(value: object, least: int) -> int:
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if type(number) is not int or number < least:
        raise OptionError(f"takes a whole number of at least {least}")
    return number


def _quantity(units: Mapping[str, int], examples: str) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if type(value) is int and value >= 0:
            return value
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[2].lower() not in units:
            raise OptionError(f"takes {examples}")
        return int(match[1]) * units[match[2].lower()]

    return parse


def _list(value: object) -> tuple[str, ...]:
    items: Iterable[Any] = re.split(r"[;,]", value) if isinstance(value, str) else ()
    if isinstance(value, (list, tuple)):
        items = value
    names = tuple(item.strip() if isinstance(item, str) else item for item in items)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise OptionError("takes names separated by ';'")
    if len(set(names)) != len(names):
        raise OptionError("names something twice")
    return names


_PARSERS: dict[str, Callable[[object], Any]] = {
    "text": _text,
    "boolean": _boolean,
    "duration": _quantity(_DURATION_MS, "a whole number and a unit, such as '30 s' (ms, s, min, h, d)"),
    "size": _quantity(_SIZE_BYTES, "a whole number and a unit, such as '128 mb' (b, kb, mb, gb)"),
    "list": _list,
    "object": lambda value: value,
}


class Options:
    """The options of one table, checked and of their types. Options that are not given have their defaults."""

    def __init__(self, given: Mapping[str, Any], declared: Sequence[ConfigOption], table: str) -> None:
        """``table``: its name in errors. Raises a ``ConfigurationError`` that lists all errors."""
        self._declared = {option.key: option for option in declared}
        self._given: dict[str, Any] = {}
        self._table = table
        problems = [
            f"{option.key!r} is missing: {option.meaning}"
            for option in declared
            if option.required and option.key not in given
        ]
        for key, value in given.items():
            option = self._declared.get(key)
            if option is None:
                problems.append(self._unknown(key))
                continue
            try:
                self._given[key] = option.parse(value)
            except OptionError as error:
                problems.append(f"{key!r} is {shorten(value)}: it {error}")
        self.refuse(problems)

    def _unknown(self, key: object) -> str:
        close = neighbours(str(key), self._declared)
        if close:
            return f"there is no option {key!r}; did you mean {' or '.join(map(repr, close))}?"
        return f"there is no option {key!r}; there are {', '.join(self._declared)}"

    def __getitem__(self, key: str) -> Any:
        return self._given[key] if key in self._given else self._declared[key].default

    def declares(self, key: str) -> bool:
        """Whether the table has this option."""
        return key in self._declared

    def is_given(self, key: str) -> bool:
        """Whether the user has given this option."""
        return key in self._given

    def given_among(self, keys: Iterable[str]) -> list[str]:
        """Those options that the user has given."""
        return [key for key in keys if key in self._given]

    def refuse(self, problems: Sequence[str]) -> None:
        """Raise ``ConfigurationError`` if there are problems."""
        if problems:
            raise ConfigurationError("\n  ".join([f"{self._table} cannot be used:", *problems]))
