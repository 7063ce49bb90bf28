"""The size of a job: a search uses it when it draws intervals, bounds and chances of faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.explore.cases import FIFO, Case
from engine.explore.run.job_under_test import Subject
from engine.explore.run.references import MOST_EVENTS, undisturbed
from engine.faults.external import requests_to
from engine.faults.injector import FaultInjector
from engine.faults.process import opportunities_at
from engine.observe.points import POINTS
from operators.table.staging import StagedFileSink

_OF_SINKS = tuple(name for name in POINTS if name.startswith(("sink.", "operator.")) and name != "sink.abort")


@dataclass(frozen=True, slots=True)
class Measure:
    """The size of a job, from one run without faults: intervals and chances are measured against it.

    ``duration_ns``: virtual, with the usual costs, or the time it waits for its records if that is longer; ``records``:
    of its sources; ``events``: of the kernel; ``visits``: of named points, each as often as chance counts it;
    ``names``: of vertices and subtasks; ``tasks``: how many; ``scales``: whether its parallelism can be changed;
    ``requests``: to external systems, by kind.
    """

    duration_ns: int
    records: int
    events: int
    visits: int
    names: tuple[str, ...]
    tasks: int
    scales: bool
    requests: Mapping[str, int]
    absent: frozenset[str] = frozenset()
    """Named points of sinks that the job's sinks never pass."""
    goes_on_drained: bool = True
    """Whether a job may continue after it was drained: no sink fills its table at the end."""
    overlaps: bool = True
    """Whether its checkpoints may overlap: those of a job with an iteration cannot."""

    @classmethod
    def of(cls, subject: Subject) -> Measure:
        """Measure a job by running it. Callers that have the job use :meth:`Subject.measure`, which does it once.
        Raises :class:`ConfigurationError` when it does not end even without faults, or is too long to be searched."""
        injector, records = FaultInjector(), sum(map(len, subject.reference().rows.values()))
        case = Case(scheduler=FIFO, config={"batch_size": 2, "checkpoint_interval": f"{max(1, records // 5)}rec"})
        finished = undisturbed(subject, case, events=MOST_EVENTS, interference=injector)
        result, view = finished.result, finished.view
        vertices = view.plan.vertices
        names = [*(vertex.name for vertex in vertices), *(subtask.name for subtask in view.plan.subtasks)]
        return cls(
            max(1_000, result.source_records * 1_000, result.ended_ns - result.started_ns),
            max(1, result.source_records),
            _rounded(finished.events),
            _rounded(sum(count * opportunities_at(point) for (point, _), count in injector.points.items())),
            tuple(dict.fromkeys(names)),
            len(view.plan.subtasks),
            subject.is_scalable,
            {kind: _rounded(count) for kind, count in requests_to(view.world.sinks).items()},
            frozenset(_OF_SINKS) - {point for point, _ in injector.points},
            not any(isinstance(one.sink, StagedFileSink) for one in view.world.file_outputs.values()),
            not any(edge.is_feedback for edge in view.plan.edges),
        )


def _rounded(count: int) -> int:
    """Up to a power of two: a seed must mean the same when the engine takes an event more or less."""
    return 1 << count.bit_length()
