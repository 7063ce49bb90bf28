"""Laws of chance for times, and arrival processes, as plain data.

A law turns one whole number, drawn from 0 up to ``DRAW_BOUND``, into virtual ns: it is the inverse of its distribution
function. So a time is a choice like every other: it is recorded as (value, bound), and a seed, a replay, a shrunk case
and a search all read it. A smaller number means a shorter time, and the arithmetic has the same result on every machine
(:mod:`engine.elements.exact_math`).

Times are given in virtual ns or as text: ``Exponential("100ms")``. :func:`parse_law` reads a law from the command line,
``exponential:100ms``, and ``str`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum, inf, isfinite
from typing import Any, Protocol, runtime_checkable

from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.elements.exact_math import exponential, natural_log, normal_quantile, rounded_times_log
from engine.elements.suggestions import nearest

DRAW_BOUND = 1 << 32
"""Bound of the number that a law turns into a time."""

_GREATEST = DRAW_BOUND - 0.5
"""The middle of the share of the greatest number."""

MOST_NS = 1 << 62
"""The longest time, about 146 years."""

Draw = Callable[[int], int]
"""Gives a number from 0 up to its argument, which is left out."""


@runtime_checkable
class Law(Protocol):
    """A distribution of times."""

    def quantile_ns(self, number: int) -> int:
        """The time for a number drawn below ``DRAW_BOUND``."""

    @property
    def mean_ns(self) -> float:
        """Its mean."""

    @property
    def variance_ns2(self) -> float:
        """Its variance in ns squared; ``inf`` when it has none."""


def _probability(number: int) -> float:
    # The middle of the number's share, so neither 0 nor 1.
    return (number + 0.5) / DRAW_BOUND


def _in_range(time_ns: float) -> int:
    return MOST_NS if time_ns >= MOST_NS else round(time_ns)


def _time(law: Any, name: str, least: int = 0) -> int:
    """Reads a time of a law that is being made, and checks it."""
    value = read_time(getattr(law, name), f"{name.removesuffix('_ns')} of {type(law).__name__}", least)
    object.__setattr__(law, name, value)
    return value


def read_time(value: object, what: str, least: int = 0) -> int:
    """Virtual ns of a time as it is typed, or as a number of ns. Raises :class:`ConfigurationError` for anything
    else."""
    if isinstance(value, str):
        value = parse_duration_ns(value, what)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"{what} is {value!r}; write a time such as '100ms', or a whole number of virtual ns")
    if not least <= value <= MOST_NS:
        raise ConfigurationError(f"{what} is {value} ns; it must be from {least} to {MOST_NS} ns")
    return value


def _number(law: Any, name: str, above: float, why: str = "") -> None:
    value: object = getattr(law, name)
    what = f"{name} of {type(law).__name__}"
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value):
        raise ConfigurationError(f"{what} is {value!r}; write a finite number")
    if value <= above:
        raise ConfigurationError(f"{what} is {value}; it must be above {above:g}{why}")
    object.__setattr__(law, name, float(value))


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same time."""

    value_ns: int | str

    def __post_init__(self) -> None:
        _time(self, "value_ns")

    def quantile_ns(self, number: int) -> int:
        """See :class:`Law`."""
        assert isinstance(self.value_ns, int)
        return self.value_ns

    @property
    def mean_ns(self) -> float:
        return float(self.value_ns)

    @property
    def variance_ns2(self) -> float:
        return 0.0

    def __str__(self) -> str:
        return f"constant:{_text(self.value_ns)}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every time from ``low_ns`` to ``high_ns`` is as likely as any other."""

    low_ns: int | str
    high_ns: int | str

    def __post_init__(self) -> None:
        low, high = _time(self, "low_ns"), _time(self, "high_ns")
        if high < low:
            raise ConfigurationError(f"Uniform goes from {_text(low)} to {_text(high)}; give the shorter time first")

    def quantile_ns(self, number: int) -> int:
        """See :class:`Law`."""
        low, high = self.low_ns, self.high_ns
        assert isinstance(low, int), low
        assert isinstance(high, int), high
        return low + ((high - low) * (2 * number + 1) + DRAW_BOUND) // (2 * DRAW_BOUND)

    @property
    def mean_ns(self) -> float:
        return (float(self.low_ns) + float(self.high_ns)) / 2

    @property
    def variance_ns2(self) -> float:
        return (float(self.high_ns) - float(self.low_ns)) ** 2 / 12

    def __str__(self) -> str:
        return f"uniform:{_text(self.low_ns)}:{_text(self.high_ns)}"


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential with this mean: the time without memory."""

    mean: int | str

    def __post_init__(self) -> None:
        _time(self, "mean", 1)

    def quantile_ns(self, number: int) -> int:
        """See :class:`Law`."""
        mean = self.mean
        assert mean.__class__ is int
        # 1 - p is exact in this form, as p is an odd multiple of half a share.
        time_ns = rounded_times_log(-mean, (_GREATEST - number) / DRAW_BOUND)
        return time_ns if time_ns < MOST_NS else MOST_NS

    @property
    def mean_ns(self) -> float:
        return float(self.mean)

    @property
    def variance_ns2(self) -> float:
        return float(self.mean) ** 2

    def __str__(self) -> str:
        return f"exponential:{_text(self.mean)}"


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The logarithm of the time is normal: half of the times are below ``median_ns``, and ``sigma`` is the standard
    deviation of the logarithm."""

    median_ns: int | str
    sigma: float

    def __post_init__(self) -> None:
        _time(self, "median_ns", 1)
        _number(self, "sigma", 0.0)
        if self.sigma > 5:
            raise ConfigurationError(
                f"sigma of LogNormal is {self.sigma}; it must be at most 5: beyond that, a run draws hardly any of the"
                " times that make up the mean"
            )

    def quantile_ns(self, number: int) -> int:
        """See :class:`Law`."""
        assert isinstance(self.median_ns, int)
        return _in_range(self.median_ns * exponential(self.sigma * normal_quantile(_probability(number))))

    @property
    def mean_ns(self) -> float:
        return float(self.median_ns) * exponential(self.sigma**2 / 2)

    @property
    def variance_ns2(self) -> float:
        return self.mean_ns**2 * (exponential(self.sigma**2) - 1)

    def __str__(self) -> str:
        return f"lognormal:{_text(self.median_ns)}:{self.sigma!r}"


@dataclass(frozen=True, slots=True)
class Pareto:
    """A heavy tail: a time is longer than ``x`` with probability ``(least / x) ** shape``. ``shape`` is above 1, or the
    mean would be infinite; up to 2 the variance is."""

    least_ns: int | str
    shape: float

    def __post_init__(self) -> None:
        _time(self, "least_ns", 1)
        _number(self, "shape", 1.0, ", or its mean would be infinite")

    def quantile_ns(self, number: int) -> int:
        """See :class:`Law`."""
        assert isinstance(self.least_ns, int)
        return _in_range(self.least_ns * exponential(-natural_log(_probability(DRAW_BOUND - 1 - number)) / self.shape))

    @property
    def mean_ns(self) -> float:
        return float(self.least_ns) * self.shape / (self.shape - 1)

    @property
    def variance_ns2(self) -> float:
        shape = self.shape
        return inf if shape <= 2 else float(self.least_ns) ** 2 * shape / ((shape - 1) ** 2 * (shape - 2))

    def __str__(self) -> str:
        return f"pareto:{_text(self.least_ns)}:{self.shape!r}"


@dataclass(frozen=True, slots=True)
class Empirical:
    """One of the given times, each as likely as any other: measured ones, say."""

    values_ns: tuple[int, ...]

    def __init__(self, values: Sequence[int | str]) -> None:
        if isinstance(values, str) or not len(values):
            raise ConfigurationError(f"values of Empirical are {values!r}; give at least one time: ['3ms', '5ms']")
        checked = tuple(sorted(read_time(value, "a value of Empirical") for value in values))
        object.__setattr__(self, "values_ns", checked)

    def quantile_ns(self, number: int) -> int:
        """See :class:`Law`."""
        return self.values_ns[number * len(self.values_ns) // DRAW_BOUND]

    @property
    def mean_ns(self) -> float:
        return fsum(self.values_ns) / len(self.values_ns)

    @property
    def variance_ns2(self) -> float:
        mean = self.mean_ns
        return fsum((value - mean) ** 2 for value in self.values_ns) / len(self.values_ns)

    def __str__(self) -> str:
        return ":".join(("empirical", *map(_text, self.values_ns)))


def times_ns(law: Law, numbers: Sequence[int]) -> list[int]:
    """The times for numbers drawn below ``DRAW_BOUND``."""
    times = list(map(law.quantile_ns, numbers))
    if type(law).__module__ != __name__:
        # Of the user: its times are known only now.
        for time_ns in times:
            _checked(law, time_ns)
    return times


def sample_ns(law: Law, draw: Draw) -> int:
    """A time of this law. A constant draws nothing: it is no choice."""
    return _checked(law, law.quantile_ns(0 if isinstance(law, Constant) else draw(DRAW_BOUND)))


def _checked(law: Law, time_ns: int) -> int:
    """A law of the user may say anything."""
    if type(time_ns) is not int or not 0 <= time_ns <= MOST_NS:
        raise ConfigurationError(
            f"quantile_ns of law {type(law).__name__} gave {time_ns!r}; return a whole number of virtual ns from 0 to"
            f" {MOST_NS}"
        )
    return time_ns


def _text(time_ns: int | str) -> str:
    assert isinstance(time_ns, int), time_ns
    return duration_text(time_ns)


_BY_NAME: dict[str, tuple[Callable[..., Law], int, int, str]] = {
    # How many times and then how many numbers follow the name, and how that is typed.
    "constant": (Constant, 1, 0, "constant:TIME"),
    "uniform": (Uniform, 2, 0, "uniform:LOW:HIGH"),
    "exponential": (Exponential, 1, 0, "exponential:MEAN"),
    "lognormal": (LogNormal, 1, 1, "lognormal:MEDIAN:SIGMA"),
    "pareto": (Pareto, 1, 1, "pareto:LEAST:SHAPE"),
}
LAW_FORMS = ", ".join(("TIME", *(form for _, _, _, form in _BY_NAME.values()), "empirical:TIME:TIME:…"))


def parse_law(text: str, what: str = "law") -> Law:
    """The law that a text means: ``exponential:100ms``, or a time alone for a constant.

    Raises :class:`ConfigurationError` when there is no such law, or it cannot have these parameters.
    """
    name, *parts = text.strip().split(":")
    if name == "empirical":
        return Empirical(parts)
    if name not in _BY_NAME:
        if not parts and name[:1].isdigit():
            return Constant(parse_duration_ns(name, what))
        close = nearest(name, (*_BY_NAME, "empirical"))
        hint = "; write" if close is None else f"; did you mean {close!r}? Write"
        raise ConfigurationError(f"{what} {text!r} is no law{hint} one of: {LAW_FORMS}")
    make, times, numbers, form = _BY_NAME[name]
    if len(parts) != times + numbers:
        raise ConfigurationError(f"{what} {text!r} has {len(parts)} parameters; write {form}")
    try:
        return make(*parts[:times], *map(float, parts[times:]))
    except ValueError:
        raise ConfigurationError(f"{what} {text!r} has a parameter that is not a number; write {form}") from None


def as_law(value: object, what: str = "law") -> Law:
    """The law that a value means: a law, a time, or the text of one."""
    if isinstance(value, Law) and not isinstance(value, type):
        return value
    if isinstance(value, str):
        return parse_law(value, what)
    if isinstance(value, int) and not isinstance(value, bool):
        return Constant(value)
    example = "Exponential('100ms'), or '5ms'"
    raise ConfigurationError(f"{what} is {value!r} of type {type(value).__name__}; write {example}")


_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*/\s*([a-zµ]+)\s*$")


def parse_rate(value: object, what: str = "rate") -> Fraction:
    """Records per virtual ns of ``'8/s'`` or ``'0.5/ms'``. Raises :class:`ConfigurationError` for anything else."""
    match = _RATE.match(value) if isinstance(value, str) else None
    try:
        unit_ns = None if match is None else parse_duration_ns(f"1{match[2]}")
    except ConfigurationError:
        unit_ns = None
    if match is None or unit_ns is None:
        raise ConfigurationError(f"{what} is {value!r}; write records per unit of time, such as '8/s' or '0.5/ms'")
    rate = Fraction(match[1]) / unit_ns
    if not Fraction(1, MOST_NS) <= rate <= 1:
        raise ConfigurationError(f"{what} is {value!r}; it must be above 0 and at most one record per ns")
    return rate
