"""Jobs under test, made from job files; and a run as the command line names it: by its replay token, or by its files.

The latter are a directory with a ``failure.json``, that file, or a file with nothing but a token.

:func:`resolve` is the only way from the command line to a job and a case; every verb that takes a run uses it. It
decides which job file is loaded (that is, run) for a token that may come from another person.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.cli.settings import load_builder
from engine.elements.errors import ConfigurationError
from engine.explore.cases import Scenario, read_scenario
from engine.explore.failures import JSON_NAME, read_failure
from engine.explore.run import Subject
from engine.explore.search import FAMILY, Token, digest_of_job_file, parse_token
from state_backends.files import LocalFileSystem


def load_subject(path: str, params: Mapping[str, str], check: Callable[[bytes], None] | None = None) -> Subject:
    """The job of a file as a job under test. ``check`` refuses content before any of it is run. Raises
    :class:`engine.elements.errors.JobFileError` when the file cannot be loaded or defines no job."""
    return load_subject_and_scenario(path, params, check)[0]


def load_subject_and_scenario(
    path: str, params: Mapping[str, str], check: Callable[[bytes], None] | None = None
) -> tuple[Subject, Scenario]:
    """The same, and the file's scenario for searches."""
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


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A named run, and its job. ``invariant``: the one that it was named for, ``None`` = any."""

    subject: Subject
    token: Token
    invariant: str | None = None


def resolve(name: str, job: str | None, typed: Sequence[str]) -> NamedRun:
    """The run whose token or file ``name`` is.

    ``job`` is the job file as the user names it. Without it, the file that the token names is loaded if the token can
    be trusted (:meth:`engine.explore.search.Token.distrust`). ``typed``: verb and arguments; the error repeats them if
    it cannot.

    Raises :class:`ConfigurationError` when the token or the file is invalid, of another job, or of a job file that the
    user must name, and :class:`engine.elements.errors.JobFileError` when the job file cannot be loaded.
    """

    token, invariant = _of_file(name) if _is_file(name) else (parse_token(name), None)
    if job is None:
        # Checked first, because only a regular file may be opened, and again as it is loaded.
        _refuse(token, token.distrust(), typed)
        subject = load_subject(
            token.job, token.params, lambda content: _refuse(token, token.distrust_content(content), typed)
        )
    else:
        subject = load_subject(job, token.params)
    token.check(subject)
    return NamedRun(subject, token, invariant)


def write_token(directory: str, number: int, token: Token) -> str:
    """Write the token of a search's failure into its own file in ``directory``, which is created; returns the path."""
    files = LocalFileSystem()
    files.make_dirs(directory)
    path = os.path.join(directory, f"token-{number}.txt")
    with files.open_write(path) as file:
        file.write(f"{token}\n".encode())
    return path


def _is_file(name: str) -> bool:
    # A token contains no slash.
    return name.endswith(".json") or os.sep in name or os.path.exists(name)


def _of_file(path: str) -> tuple[Token, str | None]:
    files = LocalFileSystem()
    path = os.path.join(path, JSON_NAME) if os.path.isdir(path) else path
    if not files.exists(path):
        raise ConfigurationError(f"{path}: there is no such file; name a {JSON_NAME}, its directory, or a replay token")
    text = files.read_bytes(path).decode(errors="replace")
    if text.startswith(FAMILY):
        return parse_token(text), None
    return read_failure(text, path)


def _refuse(token: Token, problem: str | None, typed: Sequence[str]) -> None:
    if problem is None:
        return
    known = token.job if token.job.isprintable() and os.path.isfile(token.job) else "PATH"
    raise ConfigurationError(
        f"{problem}\n"
        "  loading a job file runs it, so the file that is meant must be named\n"
        f"  fix: read it, then name it: {shlex.join(['weir', *typed, '--job', known])}"
    )
