"""A failing run, as the command line names it: by its replay token, or by the ``failure.json`` written of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.elements.errors import ConfigurationError
from engine.explore.case import FIFO
from engine.explore.concrete import concretised
from engine.explore.failure_report import read_failure, standard_invariants
from engine.explore.runner import run_case
from engine.explore.token import job_fingerprint, parse_token
from state_backends.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from engine.explore.case import Case
    from engine.explore.invariant import Violation
    from engine.explore.subject import Subject


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run that was named. ``promise``: what its output is judged by, ``None`` = what its mode promises;
    ``violation``: what it violates now, ``None`` = nothing, or not what it was named for."""

    subject: Subject
    case: Case
    promise: str | None
    violation: Violation | None


def open_run(name: str, job: str | None, promise: str | None = None) -> NamedRun:
    """Find the run that ``name`` is a token or a file of, and run it; its case comes back spelled out.

    ``job`` is the job file, when it lies elsewhere than it did; ``promise`` takes the place of the recorded one.

    Raises :class:`ConfigurationError` when the token or the file is no good, or of another job.
    """
    subject, case, recorded_promise, invariant = _of_file(name, job) if _is_file(name) else _of_token(name, job)
    promise = recorded_promise if promise is None else promise
    finished = run_case(subject, case, standard_invariants(promise)(case))
    violation = next((one for one in finished.violations if invariant in (None, one.invariant)), None)
    if case.scheduler != FIFO or case.mix.per_million:
        case = concretised(finished)
    return NamedRun(subject, case, promise, violation)


def _is_file(name: str) -> bool:
    return name.endswith(".json") or os.path.exists(name)


def _of_token(text: str, job: str | None) -> tuple[Subject, Case, str | None, str | None]:
    token = parse_token(text)
    subject = _subject(token.job or None, job, token.params)
    token.check(subject)
    return subject, token.to_case(subject), token.promise, None


def _of_file(path: str, job: str | None) -> tuple[Subject, Case, str | None, str | None]:
    files = LocalFileSystem()
    path = os.path.join(path, "failure.json") if os.path.isdir(path) else path
    if not files.exists(path):
        raise ConfigurationError(f"{path}: there is no such file; name a failure.json, or a replay token")
    recorded = read_failure(files.read_bytes(path).decode(errors="replace"), path)
    subject = _subject(recorded.job, job, recorded.params)
    if job_fingerprint(subject) != recorded.job_fingerprint:
        raise ConfigurationError(
            f"{path} is of another job: it was {recorded.job_fingerprint}, and {subject.path} is"
            f" {job_fingerprint(subject)} now\n  fix: check out the job as it was, or name it with --job PATH"
        )
    return subject, recorded.case, recorded.promise, recorded.invariant


def _subject(recorded: str | None, given: str | None, params: Mapping[str, str]) -> Subject:
    from engine.cli.subjects import load_subject

    path = given or recorded
    if path is None:
        raise ConfigurationError("the failure does not say which job file it is of; name it with --job PATH")
    return load_subject(path, params)
