"""Jobs under test, made from job files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.cli.settings import load_builder
from engine.explore.cases import Scenario, read_scenario
from engine.explore.run import Subject
from engine.explore.search import digest_of_job_file


def load_subject(path: str, params: Mapping[str, str], check: Callable[[bytes], None] | None = None) -> Subject:
    """The job of a file as a job under test. ``check`` refuses content before any of it is run. Raises
    :class:`engine.elements.errors.JobFileError` when the file cannot be loaded or defines no job."""
    return load_subject_and_scenario(path, params, check)[0]


def load_subject_and_scenario(
    path: str, params: Mapping[str, str], check: Callable[[bytes], None] | None = None
) -> tuple[Subject, Scenario]:
    """The same, and what the file says about how the job is to be searched."""
    build, loaded = load_builder(path, params, check)
    digest = digest_of_job_file(loaded.content)
    subject = Subject(
        build,
        label=loaded.job.name,
        path=loaded.path,
        params=loaded.params,
        job_digest=digest,
        expected=loaded.expected,
    )
    return subject, read_scenario(loaded.scenario, loaded.path)
