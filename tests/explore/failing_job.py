"""A small job, a judge that needs no reference run, and a sink that loses a row. Tests of shrinking and reports use
them, because the job fails for one known reason and has one known minimal case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.explore.cases import Case
from engine.explore.run import FinishedCase, Invariant, Subject
from engine.graph.job import Job
from operators.basic import CollectedResults, simple_sinks as sinks
from operators.sources import SequenceSource

RECORDS = 40
KEYS = 3
SPLITS = ("numbers/sequence-0-of-2", "numbers/sequence-1-of-2")

JOB_FILE = '''
"""Counts numbers by what they leave when divided by three."""

from engine import CollectedResults, Job, SequenceSource


def job(records: str = "40") -> Job:
    job = Job("counts", max_parallelism=8)
    numbers = job.source(SequenceSource(0, int(records), splits=2), name="numbers", parallelism=2)
    keyed = numbers.key_by(lambda number: number % 3, value=lambda number: (number % 3, 1))
    counts = keyed.reduce(lambda one, other: (one[0], one[1] + other[1]), name="count", parallelism=2)
    counts.collect(CollectedResults(), name="out", parallelism=1, chain=False)
    return job
'''


def build(_parallelism: int | None) -> Job:
    """Two splits of numbers, counted by two subtasks, collected by one."""
    job = Job("counts", max_parallelism=8)
    numbers = job.source(SequenceSource(0, RECORDS, splits=2), name="numbers", parallelism=2)
    keyed = numbers.key_by(lambda number: number % KEYS, value=lambda number: (number % KEYS, 1))
    counts = keyed.reduce(lambda one, other: (one[0], one[1] + other[1]), name="count", parallelism=2)
    counts.collect(CollectedResults(), name="out", parallelism=1, chain=False)
    return job


def subject() -> Subject:
    """The job as a subject that comes from no file."""
    return Subject(build, label="counts")


def left(case: Case) -> list[int]:
    """The numbers that are left in the input of a case."""
    half = RECORDS // 2
    kept = []
    for number in range(RECORDS):
        ranges = case.dropped.get(SPLITS[number // half], ())
        if not any(first <= number % half < end for first, end in ranges):
            kept.append(number)
    return kept


class EveryCountOnce(Invariant):
    """Each key's running counts are committed, each once."""

    name = "T1"
    title = "every running count is committed once"

    def finished(self, case: FinishedCase) -> None:
        """Compare with what can be said without running anything."""
        expected: Counter[str] = Counter()
        for key, numbers in sorted(Counter(number % KEYS for number in left(case.view.case)).items()):
            expected.update(repr((key, count)) for count in range(1, numbers + 1))
        found = Counter(case.committed.get("out", ()))
        for kind, rows in (("lost", expected - found), ("too many", found - expected)):
            if rows:
                self.violated(f"{kind}: {', '.join(sorted(rows.elements()))}", kind=kind)


def judges(_case: Case) -> Sequence[Invariant]:
    return [EveryCountOnce()]


_HEALTHY: Any = sinks._TransactionalCollect.snapshot_state


@contextmanager
def losing_sink(checkpoint_id: int = 2, least: int = 2) -> Iterator[None]:
    """A sink that loses the last of at least two rows that wait for the second checkpoint."""

    def losing(operator: Any, number: int) -> None:
        if number == checkpoint_id and len(operator._current) >= least:
            operator._current.pop()
        _HEALTHY(operator, number)

    sinks._TransactionalCollect.snapshot_state = losing  # type: ignore[method-assign]
    try:
        yield
    finally:
        sinks._TransactionalCollect.snapshot_state = _HEALTHY  # type: ignore[method-assign]
