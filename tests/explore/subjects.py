"""Small jobs under test for these tests, and cases of them."""

from __future__ import annotations

from collections.abc import Mapping

from engine.explore.cases import Case, Setting
from engine.explore.run import Subject
from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.sources import SequenceSource


def case_with(config: Mapping[str, Setting], *faults: str, mix: FaultMix | None = None, seed: str = "0") -> Case:
    """A case in which these faults strike, and those that are drawn from ``mix``."""
    return Case(seed, config, tuple(map(parse_fault, faults)), mix or FaultMix())


def counting_subject(records: int = 24, *, keys: int = 3) -> Subject:
    """Two sources, a running count per key, one sink; ``count`` has the parallelism that is asked for, or 2."""

    def build(parallelism: int | None) -> Job:
        job = Job("counting", max_parallelism=8)
        numbers = job.source(SequenceSource(0, records, splits=2), name="numbers", uid="numbers", parallelism=2)
        pairs = numbers.key_by(lambda number: number % keys, value=lambda number: (number % keys, 1))
        counts = pairs.reduce(
            lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count", parallelism=parallelism or 2
        )
        counts.collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
        return job

    return Subject(build, label="counting")


def order_dependent_subject() -> Subject:
    """A job whose rows say in which order the records of two sources came: no two schedules give the same."""

    def build(_parallelism: int | None) -> Job:
        job = Job("merging", max_parallelism=8)
        numbers = job.source(SequenceSource(0, 12, splits=2), name="numbers", uid="numbers", parallelism=2)
        one = numbers.key_by(lambda _number: 0, value=lambda number: (number,))
        one.reduce(lambda seen, number: seen + number, name="seen", uid="seen", parallelism=1).collect(
            CollectedResults(), name="out", uid="out", parallelism=1, chain=False
        )
        return job

    return Subject(build, label="merging")


def chained_subject() -> Subject:
    """A job whose ``text`` and ``rows`` are two by two: with two sources they are all one chain, otherwise they are
    two."""

    def build(parallelism: int | None) -> Job:
        job = Job("chained", max_parallelism=8)
        source = SequenceSource(0, 12, splits=2)
        numbers = job.source(source, name="numbers", uid="numbers", parallelism=parallelism or 1)
        texts = numbers.map(str, name="text", uid="text", parallelism=2)
        texts.collect(CollectedResults(), name="rows", uid="rows", parallelism=2)
        return job

    return Subject(build, label="chained")


def failing_subject() -> Subject:
    """A job with a function that never gets past one record."""

    def build(_parallelism: int | None) -> Job:
        job = Job("failing", max_parallelism=8)
        job.source(SequenceSource(0, 8), name="numbers", uid="numbers").map(
            lambda number: 1 // (number - 5), name="divide", uid="divide"
        ).collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
        return job

    return Subject(build, label="failing")
