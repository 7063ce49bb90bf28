"""Opinions on small jobs, and the same jobs run by the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine import Job
from engine.explore.cases import FIFO, Case
from engine.explore.opinion import Opinion, compare_outputs, second_opinion
from engine.explore.run import Subject, World
from engine.explore.run.references import undisturbed


def opinion_on(
    subject: Subject, *, parallelisms: Sequence[int | None] = (None,), dropped: Mapping[str, Any] | None = None
) -> Opinion:
    """The second opinion on a job under test."""
    world = World()
    plans = [subject.in_world(subject.plan(one), world if not at else World()) for at, one in enumerate(parallelisms)]
    sinks = [*world.sinks, *world.file_outputs, *world.announcers]
    return second_opinion(plans, world.files, sinks, dropped)


def subject_of(build: Callable[[Job], object], *, parallelism: int = 1) -> Subject:
    def made(asked: int | None) -> Job:
        job = Job("small", parallelism=asked or parallelism, max_parallelism=8)
        build(job)
        return job

    return Subject(made, label="small")


def rows(opinion: Opinion) -> dict[str, list[str]]:
    """The rows of an opinion, sink by sink, sorted; it must give one answer for every sink."""
    assert opinion.dependent is None, opinion.dependent
    assert not opinion.unknown, opinion.unknown
    return {name: sorted(found) for name, found in opinion.endings[0].items()}


def agreed(build: Callable[[Job], object], *, parallelism: int = 1) -> dict[str, list[str]]:
    """The rows that a job commits, on which the second opinion and the engine must agree."""
    subject = subject_of(build, parallelism=parallelism)
    said = rows(opinion_on(subject))
    done = undisturbed(subject, Case(scheduler=FIFO)).committed
    assert compare_outputs(said, done).equal, compare_outputs(said, done).describe()
    return said
