"""The settings of buffer debloating, see :mod:`engine.runtime.channels.debloating`."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SAMPLES = 20
"""Flink: ``taskmanager.network.memory.buffer-debloat.samples``."""

DEFAULT_THRESHOLD_PERCENT = 25
"""Flink: ``taskmanager.network.memory.buffer-debloat.threshold-percentages``."""

PERIODS_PER_TARGET = 5
"""Flink: a period of 200 ms at a target of 1 s."""


@dataclass(frozen=True, slots=True)
class DebloatSettings:
    """How the inputs of all tasks of a run are kept short.

    ``target_ns``          virtual time in which a task should be able to take everything that is in flight to it;
    ``period_ns``          how often the credit is computed anew;
    ``min_records``        the least credit of a channel, at least 1;
    ``threshold_percent``  changes below this part of the present credit are left;
    ``samples``            periods over which the credit is smoothed: one counts ``2 / (samples + 1)``.
    """

    target_ns: int
    period_ns: int
    min_records: int = 1
    threshold_percent: int = DEFAULT_THRESHOLD_PERCENT
    samples: int = DEFAULT_SAMPLES

    def __post_init__(self) -> None:
        assert self.target_ns >= 1, self
        assert self.period_ns >= 1, self
        assert self.min_records >= 1, self
        assert self.threshold_percent >= 0, self
        assert self.samples >= 1, self
