"""How everything here is measured: in turns with a reference, so that a busy machine slows down both alike.

A *trial* is a function without arguments that prepares what it needs, does its work once, checks the result and
returns the seconds of the work alone: start-up and checks are not in it. ``interleaved`` runs the trials in
turns, reference, trial, reference, trial, ..., and sets each trial against the mean of the reference runs right
before and right after it. What is reported is the median of these ratios, with the extremes beside it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""``wall`` counts everything, waiting for the disk too. ``cpu`` counts what this process computes (and the system for
it), which other programs on the machine disturb less."""

_clock = [CLOCKS["wall"]]


def use_clock(name: str) -> None:
    """Measure by one of ``CLOCKS`` from now on."""
    _clock[0] = CLOCKS[name]


def clock_in_use() -> str:
    """The name of the clock in use, for a process that measures on our behalf."""
    return next(name for name, clock in CLOCKS.items() if clock is _clock[0])


def now() -> float:
    """Seconds on the clock in use; only differences mean anything."""
    return _clock[0]()


Trial = Callable[[], float]
"""Does its work once and returns how many seconds that took, start-up not counted."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a number is hoped to be: at least, or below, a bound."""

    bound: float
    at_least: bool

    def met_by(self, value: float) -> bool:
        """Whether ``value`` is on the right side of the bound."""
        return value >= self.bound if self.at_least else value < self.bound


def at_least(bound: float) -> Goal:
    """The number should be ``bound`` or more."""
    return Goal(bound, at_least=True)


def below(bound: float) -> Goal:
    """The number should be less than ``bound``."""
    return Goal(bound, at_least=False)


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table.

    ``case``     what was measured;
    ``unit``     what the samples are, e.g. ``"x bare loop"``;
    ``samples``  one number per round;
    ``goal``     what the median should be, ``None`` = only for information;
    ``details``  further numbers, by name, such as records per second.
    """

    case: str
    unit: str
    samples: tuple[float, ...]
    goal: Goal | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)


@dataclass(frozen=True, slots=True)
class Paired:
    """One trial's seconds, and those of the reference around it, round by round."""

    seconds: tuple[float, ...]
    reference_seconds: tuple[float, ...]

    @property
    def speed_ratios(self) -> tuple[float, ...]:
        """How fast the trial is beside the reference: above 1 is faster."""
        return tuple(ref / own for own, ref in zip(self.seconds, self.reference_seconds, strict=True))

    @property
    def extra_percent(self) -> tuple[float, ...]:
        """How much longer than the reference the trial takes."""
        return tuple(
            100.0 * (own / ref - 1.0) for own, ref in zip(self.seconds, self.reference_seconds, strict=True)
        )


def interleaved(reference: Trial, trials: Mapping[str, Trial], rounds: int) -> dict[str, Paired]:
    """Run ``trials`` in turns with ``reference``, ``rounds`` times each."""
    assert rounds >= 1
    seconds: dict[str, list[float]] = {name: [] for name in trials}
    around: dict[str, list[float]] = {name: [] for name in trials}
    before = _run(reference)
    for _ in range(rounds):
        for name, trial in trials.items():
            seconds[name].append(_run(trial))
            after = _run(reference)
            around[name].append((before + after) / 2)
            before = after
    return {name: Paired(tuple(seconds[name]), tuple(around[name])) for name in trials}


def _run(trial: Trial) -> float:
    # What one run leaves behind must not be collected at the expense of the next.
    gc.collect()
    return trial()


def per_second(count: int, seconds: tuple[float, ...]) -> int:
    """Items per second in the median run."""
    return round(count / median(seconds))
