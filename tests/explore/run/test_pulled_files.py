"""Sources of files under exploration: splits that are pulled, killed anywhere; stories of what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.explore.cases import Case
from engine.explore.invariants import invariants_for
from engine.explore.run import Subject, run_case
from engine.explore.story import tell
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.files.formats import TextFormat
from operators.files.reading import FileSource
from operators.files.reading.file_source import Assignment

LINES = sorted(repr(f"{name}{number}") for name in "abc" for number in range(6))


def reading(directory: Path, assignment: Assignment) -> Subject:
    for name in "abc":
        (directory / name).write_text("".join(f"{name}{number}\n" for number in range(6)))

    def build(_parallelism: int | None) -> Job:
        job = Job("reading")
        source = FileSource(str(directory), TextFormat(), split_bytes=7, assignment=assignment)
        lines = job.source(source, name="lines", uid="lines", parallelism=2)
        lines.collect(CollectedResults(), name="out", uid="out", parallelism=1)
        return job

    return Subject(build, label="reading")


@pytest.mark.parametrize("failover", ["full", "region"])
@pytest.mark.parametrize("fault", ["crash:lines[1]@{at}ns", "crash:lines[0]@{at}ns", "crash:process@{at}ns"])
def test_pulled_splits_survive_every_death(tmp_path: Path, fault: str, failover: str) -> None:
    """Of a reader, of the one that lists, and of the process, at any time: no invariant is violated, no line lost."""
    subject = reading(tmp_path, "pull")
    for at_ns in range(0, 14_000, 1_900):
        case = Case(
            seed=str(at_ns),
            config={"checkpoint_interval": "3us", "batch_size": 2, "failover": failover},
            faults=(parse_fault(fault.format(at=at_ns)),),
        )
        finished = run_case(subject, case, invariants_for(None))
        assert finished.violations == []
        assert sorted(finished.committed["out"]) == LINES


@pytest.mark.parametrize("assignment", ["static", "pull"])
def test_the_story_of_a_job_tells_which_lines_of_which_split_are_read(tmp_path: Path, assignment: Assignment) -> None:
    """The files lie in the world of a run that is watched, too."""
    story, finished, _ = tell(reading(tmp_path, assignment), Case("0"))

    assert sorted(finished.committed["out"]) == LINES
    told = str(story)
    assert f"{tmp_path}/a@0+7" in told
