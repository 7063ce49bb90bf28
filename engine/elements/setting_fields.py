"""Settings that are declared as the fields of a dataclass.

:func:`setting` declares one: its default and, as metadata of the field, what it means, which values it takes and what
Flink calls it. :func:`declared` reads the declarations of a dataclass, :func:`settle` checks the values of an instance
against them. ``engine.runtime.config`` makes one table of all settings. The command line and the pages read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any

from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.elements.suggestions import nearest


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of a setting are written.

    ``parse``       makes a value of a text; its second argument names the setting in errors;
    ``show``        makes a text of a value, which ``parse`` reads back;
    ``types``       of a value in Python;
    ``example``     what to write instead of a value of another type; ``{name}`` stands for the setting; by default the
                    setting's own default;
    ``takes_text``  whether Python may give the text instead of the value;
    ``of``          the kind of the values of a mapping.
    """

    metavar: str
    parse: Callable[[str, str], Any]
    show: Callable[[Any], str]
    types: tuple[type, ...]
    example: str = ""
    takes_text: bool = False
    of: Kind | None = None


_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_MINUTE_NS = 60_000_000_000
_SWITCHES = {"true": True, "false": False}


def _whole(text: str, what: str) -> int:
    if re.fullmatch(r"\s*-?\d+\s*", text) is None:
        raise ConfigurationError(f"{what} {text!r} is not a whole number")
    return int(text)


def _size(text: str, what: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _SIZES:
        raise ConfigurationError(f"{what} {text!r} is not a size: write a number of bytes, or 20kb, 64mb, 1gb")
    return int(match[1]) * _SIZES[match[2]]


def _switch(text: str, what: str) -> bool:
    if text.strip().lower() not in _SWITCHES:
        raise ConfigurationError(f"{what} {text!r} is neither true nor false")
    return _SWITCHES[text.strip().lower()]


def _time(time_ns: int) -> str:
    return f"{time_ns // _MINUTE_NS}m" if time_ns and time_ns % _MINUTE_NS == 0 else duration_text(time_ns)


WHOLE = Kind("N", _whole, str, (int,))
SIZE = Kind("BYTES", _size, str, (int,), takes_text=True)
DURATION = Kind("TIME", parse_duration_ns, _time, (int,), takes_text=True)
SWITCH = Kind("true|false", _switch, lambda value: str(value).lower(), (bool,), "{name}=True or {name}=False")
TEXT = Kind("TEXT", lambda text, what: text, str, (str,))


def by_name(of: Kind) -> Kind:
    """Values by the name of a subtask, vertex or operator: ``count[0]=3,map=2``."""

    def parse(text: str, what: str) -> dict[str, Any]:
        pairs = [pair.rpartition("=") for pair in text.split(",") if pair]
        if not all(name for name, _, _ in pairs):
            raise ConfigurationError(f"{what} {text!r} is not of the form NAME={of.metavar},NAME={of.metavar}")
        return {name: of.parse(value, what) for name, _, value in pairs}

    def show(values: Mapping[str, Any]) -> str:
        return ",".join(f"{name}={of.show(value)}" for name, value in values.items())

    return Kind(f"NAME={of.metavar},…", parse, show, (Mapping,), "{name}={{'count[0]': 3}}", of=of)


@dataclass(frozen=True, slots=True)
class About:
    """The declaration of a setting; see :func:`setting`."""

    text: str
    kind: Kind | None
    least: int | None
    most: int | None
    choices: tuple[str, ...]
    none: str
    none_text: str
    option: str | None
    flink: tuple[str, ...]
    flink_default: str
    why: str
    beside: str


def setting(
    default: object = MISSING,
    text: str = "",
    *,
    factory: Callable[[], object] | None = None,
    kind: Kind | None = None,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
    none: str = "",
    none_text: str = "none",
    option: str | None = None,
    flink: tuple[str, ...] = (),
    flink_default: str = "",
    why: str = "",
    beside: str = "",
) -> Any:
    """A field that is a setting.

    ``text``           what it decides, in one sentence;
    ``kind``           how it is written; by default its annotation and its unit say so;
    ``least``, ``most``, ``choices``  the values that it takes;
    ``none``           the meaning of ``None``, and ``none_text`` how it is typed;
    ``option``         its own option of the command line, without the dashes; ``None`` = only ``--set``;
    ``flink``          Flink's keys for it: the current one, then deprecated spellings;
    ``flink_default``  Flink's default, and ``why`` ours differs;
    ``beside``         the other settings that it needs or excludes.
    """
    about = About(text, kind, least, most, choices, none, none_text, option, flink, flink_default, why, beside)
    if factory is not None:
        return field(default_factory=factory, metadata={"setting": about})
    return field(default=default, metadata={"setting": about})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its declaration, its place and its values.

    ``field``     the name of its field, which ends in its unit;
    ``owner``     the group before its name: ``cost``, ``acking`` or nothing;
    ``optional``  whether ``None`` is a value.
    """

    field: str
    owner: str
    default: Any
    optional: bool
    kind: Kind
    about: About

    @property
    def name(self) -> str:
        """Its public name: ``cost.link_latency``. A time says its unit in its value, so its name has none."""
        return self._of_owner(self.field.removesuffix("_ns"))

    @property
    def field_name(self) -> str:
        """Its name in the cases of a search: ``cost.link_latency_ns``."""
        return self._of_owner(self.field)

    def _of_owner(self, name: str) -> str:
        return f"{self.owner}.{name}" if self.owner else name

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return self.name.replace("_", " ").replace(".", " ")

    def parse(self, text: str) -> Any:
        """The value that a text means. Raises :class:`ConfigurationError` with the values that may be written."""
        if self.optional and text == self.about.none_text:
            return None
        return self.settled(self.kind.parse(text, self.words))

    def show(self, value: Any) -> str:
        """The text of a value: ``parse(show(value)) == value``."""
        return self.about.none_text if value is None else self.kind.show(value)

    def settled(self, value: Any) -> Any:
        """The value, read from its text if it is one. Raises :class:`ConfigurationError` when it cannot work."""
        if value is None and self.optional:
            return None
        kind, about = self.kind, self.about
        value = self._typed(value, kind, self.field)
        if kind.of is not None:
            value = {name: self._typed(one, kind.of, f"{self.field}[{name!r}]") for name, one in value.items()}
        if about.choices and value not in about.choices:
            close = nearest(value, about.choices)
            hint = "" if close is None else f"; did you mean {close!r}?"
            raise ConfigurationError(f"{self.field} is {value!r}; it must be one of {', '.join(about.choices)}{hint}")
        # A function in the place of a number is checked when it is called.
        bounded = about.least is not None and not callable(value)
        if bounded and not about.least <= value <= (value if about.most is None else about.most):
            bound = f"at least {about.least}" if about.most is None else f"from {about.least} to {about.most}"
            raise ConfigurationError(f"{self.field} is {value}; it must be {bound}{', or None' * self.optional}")
        return value

    def _typed(self, value: Any, kind: Kind, name: str) -> Any:
        """A value of this setting, or one of the values of its mapping."""
        if isinstance(value, str) and kind.takes_text:
            value = kind.parse(value, self.words)
        # To Python a bool is an int, and a class passes for its protocol's type: NoRestart for NoRestart().
        fits = isinstance(value, kind.types) and not isinstance(value, type)
        if fits and (type(value) is not bool or bool in kind.types):
            return value
        if kind.types == (int,):
            hint = "; times are whole virtual ns, or a text such as '250ms'" if kind is DURATION else ""
            raise ConfigurationError(f"{name} is {value!r}; it must be a whole number{hint}")
        example = (kind.example or f"{{name}}={3 if kind is not self.kind else self.default!r}").format(name=name)
        raise ConfigurationError(f"{name} is {value!r} of type {type(value).__name__}; write {example}")


@cache
def declared(owner: Any, group: str = "") -> tuple[Setting, ...]:
    """The settings among the fields of a dataclass."""
    found = []
    for one in fields(owner):
        about: About | None = one.metadata.get("setting")
        if about is not None:
            annotation = [part.strip() for part in str(one.type).split("|")]
            default = one.default if one.default_factory is MISSING else one.default_factory()
            kind = about.kind or _kind_of(one.name, annotation)
            found.append(Setting(one.name, group, default, "None" in annotation, kind, about))
    return tuple(found)


def _kind_of(name: str, annotation: list[str]) -> Kind:
    if name.endswith("_ns"):
        return DURATION
    if name.endswith(("_bytes", "_bytes_per_s")):
        return SIZE
    return {"bool": SWITCH, "int": WHOLE, "str": TEXT}[annotation[0]]


def settle(instance: Any, what: str = "") -> None:
    """Check the settings of an instance that is just being made, and read those that are given as text. ``what``
    begins the error."""
    owner: Any = type(instance)
    for one in declared(owner):
        value = getattr(instance, one.field)
        if value is one.default and type(value) is not str:
            # Nearly all are: a search makes a configuration for every case.
            continue
        try:
            settled = one.settled(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{what}{error}") from None
        if settled is not value:
            object.__setattr__(instance, one.field, settled)
