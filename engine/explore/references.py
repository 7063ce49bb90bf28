"""What a job commits when nothing goes wrong: the reference that the output of runs with faults is judged by.

The reference is one run, first come, first served. Whether one run can speak for all is found out by a few more, under
other schedules, batch sizes, costs and parallelisms: if they commit other rows, the job depends on the order in which
its records meet, and no single reference exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.elements.errors import ConfigurationError
from engine.explore.case import FIFO, RANDOM, Case, Ranges, Setting
from engine.explore.reference import compare_outputs
from engine.explore.runner import CUT_OFF, Bounds, FinishedCase, run_case

if TYPE_CHECKING:
    from engine.explore.subject import Subject
    from engine.faults.injector import FaultInjector

Output = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Reference:
    """``rows``: by partition, of the first run without faults; ``order_dependent``: how another one differed, ``None``
    when all agree; ``endings``: the different outputs that were seen, the first one first."""

    rows: Output
    order_dependent: str | None = None
    endings: tuple[Output, ...] = ()


_BOUNDS = Bounds(attempts=2)
"""When nothing goes wrong, nothing has to be tried again."""

MOST_EVENTS = _BOUNDS.events // 5
"""Of a job that is to be searched, without faults. With them, in batches of one record, it takes up to three times as
many, and a run that is cut off at its bounds counts as one that never ends."""

Dropped = tuple[tuple[str, Ranges], ...]


class References:
    """The references of one job, by what is left out of its input."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[Dropped, Reference] = {}

    def of(self, dropped: Mapping[str, Ranges] | None = None) -> Reference:
        """The reference for this input.

        :raises ConfigurationError: when the job does not end without faults
        """
        key = tuple(sorted((dropped or {}).items()))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._whole() if not key else self._part(dict(key))
        return known

    def _whole(self) -> Reference:
        first = self._output(Case(scheduler=FIFO))
        endings: list[Output] = [first]
        reason = None
        for number, settings in enumerate(_others(self._subject)):
            case = Case(seed=f"reference/{number}", config=settings, scheduler=RANDOM)
            output = self._output(case)
            if all(not compare_outputs(ending, output).equal for ending in endings):
                endings.append(output)
                reason = reason or _difference(first, output)
        return Reference(first, reason, tuple(endings))

    def _part(self, dropped: Mapping[str, Ranges]) -> Reference:
        """Of part of the input. A job that does not depend on the order with all of it does not with less."""
        whole = self.of()
        rows = self._output(Case(scheduler=FIFO, dropped=dropped))
        return Reference(rows, whole.order_dependent, (rows,))

    def _output(self, case: Case) -> Output:
        return undisturbed(self._subject, case).committed


def undisturbed(
    subject: Subject, case: Case, *, events: int = _BOUNDS.events, interference: FaultInjector | None = None
) -> FinishedCase:
    """A run without faults that comes to its end.

    Raises :class:`engine.elements.errors.ConfigurationError` when it does not: the job fails by itself, or it takes
    more than so many events of the kernel.
    """
    finished = run_case(subject, case, bounds=replace(_BOUNDS, events=events), interference=interference)
    if finished.is_over:
        return finished
    job, manager = f"job {subject.label!r}", finished.view.execution.manager
    if finished.outcome == CUT_OFF and manager.attempt == 1:
        raise ConfigurationError(
            f"{job} is too long to be searched: without faults it has not ended after {finished.events:,} events of the"
            f" kernel and {manager.source_records:,} records read; it must end within {MOST_EVENTS:,} events\n"
            f"  runs with faults take several times as many, and are cut off after {_BOUNDS.events:,}\n"
            "  fix: give the job fewer records, with --param NAME=VALUE if job() takes their number, or in its file;"
            " give a source without an end one"
        )
    raise ConfigurationError(
        f"{job} is {finished.outcome} even when nothing goes wrong:"
        f" {finished.error or '; '.join(map(str, finished.violations))}\n"
        "  fix the job first: weir run shows the same error"
    ) from finished.error


def _others(subject: Subject) -> list[dict[str, Setting]]:
    another = 3 if subject.is_scalable else None
    return [
        {"batch_size": 1},
        {"batch_size": 3, "cost.record_ns": 700, "cost.link_latency_ns": 2_500, "checkpoint_interval": "20us"},
        {"batch_size": 2, "cost.link_latency_ns": 300, "parallelism": another, "checkpoint_interval": "50us"},
    ]


def _difference(first: Output, other: Output) -> str:
    return compare_outputs(first, other).describe(1).replace("\n", ";")
