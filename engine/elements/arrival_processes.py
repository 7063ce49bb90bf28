"""Arrival processes: when records come from outside, whether the job runs or not. Plain data, like the laws of times.

A process gives the time at which a record is due from that of the record before it. Each of several splits has a part
of the records: of a Poisson process a Poisson process of its own, of all others every n-th record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Protocol, runtime_checkable

from engine.elements.errors import ConfigurationError
from engine.elements.exact_math import rounded_times_log
from engine.elements.laws import DRAW_BOUND, parse_rate, read_time

DrawNumber = Callable[[], int]
"""Gives the number below ``DRAW_BOUND`` that decides about the next record."""


@dataclass(frozen=True, slots=True)
class Part:
    """One split of a source: the ``split``-th of ``splits``. ``began_ns``: when the process began."""

    split: int
    splits: int
    began_ns: int


@runtime_checkable
class ArrivalProcess(Protocol):
    """When records are due."""

    def due_ns(self, part: Part, number: int, before_ns: int, draw: DrawNumber) -> int:
        """The virtual time at which a record is due: the ``number``-th of its split, from 0. The one before it was due
        at ``before_ns``; before the first one the process began."""

    @property
    def most(self) -> int | None:
        """How many records there are at most; ``None``: no end."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Records come independently of each other, ``rate`` on average: ``Poisson("8/s")``."""

    rate: str
    mean_ns: float = field(init=False, repr=False, compare=False)
    """Mean time between two records."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_ns", float(1 / parse_rate(self.rate, "rate of Poisson")))

    def due_ns(self, part: Part, number: int, before_ns: int, draw: DrawNumber) -> int:
        """See :class:`ArrivalProcess`. The time between two records is exponential."""
        # As in the law `Exponential`: 1 - p is exact in this form.
        return before_ns + rounded_times_log(-self.mean_ns * part.splits, (DRAW_BOUND - draw() - 0.5) / DRAW_BOUND)

    @property
    def most(self) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Periodic:
    """Records come at equal distances, the first one at the beginning: ``Periodic("8/s")``."""

    rate: str
    distance_ns: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "distance_ns", 1 / parse_rate(self.rate, "rate of Periodic"))

    def due_ns(self, part: Part, number: int, before_ns: int, draw: DrawNumber) -> int:
        """See :class:`ArrivalProcess`. Counted from the beginning, so that fractions of ns do not add up."""
        distance_ns = self.distance_ns
        count = number * part.splits + part.split
        return part.began_ns + count * distance_ns.numerator // distance_ns.denominator

    @property
    def most(self) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Trace:
    """Records come at these times after the beginning, which were measured, say: ``Trace(["0s", "20ms", "25ms"])``."""

    times_ns: tuple[int, ...]

    def __init__(self, times: Sequence[int | str]) -> None:
        if isinstance(times, str):
            raise ConfigurationError(f"times of Trace are {times!r}; give a list: ['0s', '20ms']")
        checked = tuple(read_time(time, "a time of Trace") for time in times)
        for before, after in pairwise(checked):
            if after < before:
                raise ConfigurationError(f"times of Trace go back from {before} ns to {after} ns; sort them")
        object.__setattr__(self, "times_ns", checked)

    def due_ns(self, part: Part, number: int, before_ns: int, draw: DrawNumber) -> int:
        """See :class:`ArrivalProcess`."""
        return part.began_ns + self.times_ns[number * part.splits + part.split]

    @property
    def most(self) -> int | None:
        return len(self.times_ns)
