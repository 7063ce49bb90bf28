"""The kinds of values that only settings of a run have, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.checkpoint.restore import RestartStrategy
from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError, shorten
from engine.elements.failure_laws import Failures, parse_failures
from engine.elements.laws import Law, as_law, parse_law
from engine.elements.setting_fields import SIZE, Kind
from engine.runtime.config.restart_strategies import parse_restart, restart_text


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """When periodic checkpoints are triggered: every ``time_ns`` of virtual time, or every ``records`` records that
    the sources of the job have emitted together. Exactly one of the two is set."""

    time_ns: int | None = None
    records: int | None = None

    def __post_init__(self) -> None:
        if (self.time_ns is None) == (self.records is None):
            raise ConfigurationError("a checkpoint interval is either a time or a number of records")
        for name in ("time_ns", "records"):
            value: object = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigurationError(
                    f"{name} of a checkpoint interval is {value!r}; it must be a whole number, or write"
                    " CheckpointInterval.parse('100ms')"
                )
        if (self.time_ns or self.records or 0) <= 0:
            raise ConfigurationError("a checkpoint interval must be above 0")

    @classmethod
    def parse(cls, text: str) -> CheckpointInterval:
        """``'100ms'`` or ``'10000rec'``."""
        match = re.fullmatch(r"\s*(\d+)\s*rec\s*", text)
        if match is not None:
            return cls(records=int(match[1]))
        try:
            return cls(time_ns=parse_duration_ns(text, "checkpoint interval"))
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; or a number of source records, e.g. 10000rec") from None

    def __str__(self) -> str:
        """The text that :meth:`parse` reads."""
        return f"{self.records}rec" if self.time_ns is None else duration_text(self.time_ns)


def several_failures(value: Failures | Sequence[Failures]) -> tuple[Failures, ...]:
    """All failures of the setting, which may be a single one."""
    return (value,) if isinstance(value, Failures) else tuple(value)


@dataclass(frozen=True, slots=True)
class RecordSize:
    """Sizes of records by a user's function, checked."""

    function: Callable[[Any], int]

    def __call__(self, value: Any) -> int:
        """The bytes of a record."""
        try:
            size: object = self.function(value)
        except Exception as error:
            what = f"record_bytes raised {type(error).__name__}: {error}, for the record {shorten(value)}"
            raise ConfigurationError(f"{what}; fix the function, or give a number of bytes") from error
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigurationError(
                f"record_bytes gave {size!r} for the record {shorten(value)}; the function must give a whole number of"
                " bytes, at least 1"
            )
        return size

    def __str__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


@dataclass(frozen=True, slots=True)
class ServiceOfRecord:
    """Service times by a user's function of the record, checked."""

    function: Callable[[Any], Law | str | int]

    def __call__(self, value: Any) -> Law:
        """The law of the time that a record takes; a time alone is a constant one."""
        try:
            found = self.function(value)
        except Exception as error:
            what = f"service function {self} raised {type(error).__name__}: {error}, for the record {shorten(value)}"
            raise ConfigurationError(f"{what}; fix the function, or give a law") from error
        try:
            return as_law(found, "it")
        except ConfigurationError as error:
            raise ConfigurationError(
                f"service function {self} gave {found!r} for the record {shorten(value)}: {error}"
            ) from None

    def __str__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def as_service(value: Law | ServiceOfRecord | Callable[[Any], Law | str | int]) -> Law | ServiceOfRecord:
    """A function of the record is checked from now on."""
    return value if isinstance(value, (Law, ServiceOfRecord)) else ServiceOfRecord(value)


def _factor(text: str, what: str) -> float:
    try:
        return int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        raise ConfigurationError(f"{what} {text!r} is not a number") from None


INTERVAL = Kind(
    "100ms|10000rec|none", lambda text, what: CheckpointInterval.parse(text), str, (CheckpointInterval,),
    "{name}='100ms', '10000rec' or None", takes_text=True,
)  # fmt: skip
RESTART = Kind(
    "STRATEGY", lambda text, what: parse_restart(text), restart_text, (RestartStrategy,),
    "{name}=NoRestart(), another strategy, or its text, such as 'fixed:3:10ms'", takes_text=True,
)  # fmt: skip
LAW = Kind("LAW", parse_law, str, (Law,), "{name}='exponential:100ms', or a law", takes_text=True)
_FUNCTION: Any = Callable
SERVICE = Kind(
    LAW.metavar, LAW.parse, str, (Law, _FUNCTION),
    "{name}='exponential:100ms', a law, or a function of the record that gives one", takes_text=True,
)  # fmt: skip
FACTOR = Kind("FACTOR", _factor, str, (int, float))
RECORD_SIZE = Kind(
    SIZE.metavar, SIZE.parse, str, (int, _FUNCTION), "{name}=100, or a function of the record: {name}=len",
    takes_text=True,
)  # fmt: skip
FAILURES = Kind(
    "LAW[@TARGET],…", parse_failures, lambda value: ",".join(map(str, several_failures(value))),
    (Failures, tuple, list),
    "{name}=Failures(Exponential('6h')), or its text: 'exponential:6h'", takes_text=True,
)  # fmt: skip
SEED = Kind("TEXT", lambda text, what: text, str, (str, int))
STATE_BACKEND = Kind(
    "NAME", lambda text, what: text, lambda value: value if isinstance(value, str) else value.name, (object,),
    "{name}='heap', or give a state backend",
)  # fmt: skip
