"""Jobs under test, made from job files; and a run, as the command line names it: by its replay token, or by what was
written of it.

That is a directory with a ``failure.json``, that file, or a file with nothing but a token.

:func:`resolve` is the one way from what is typed to a job and a case; every verb that takes a run goes through it. It
decides which job file is loaded, that is to say run, for somebody else's token.
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


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run that was named, and its job. ``invariant``: the one that it was named for, ``None`` = any."""

    subject: Subject
    token: Token
    invariant: str | None = None


def resolve(name: str, job: str | None, typed: Sequence[str]) -> NamedRun:
    """The run that ``name`` is a token or a file of.

    ``job`` is the job file as the user names it; without it, the one that the token names is loaded if the token may be
    trusted so far (:meth:`engine.explore.search.Token.distrust`). ``typed``: verb and arguments, to be repeated in the
    error when it may not.

    Raises :class:`ConfigurationError` when the token or the file is no good, of another job, or of a job file that has
    to be named, and :class:`engine.elements.errors.JobFileError` when the job file cannot be loaded.
    """

    token, invariant = _of_file(name) if _is_file(name) else (parse_token(name), None)
    if job is None:
        # Looked at first, for what is no regular file is not to be opened, and again as it is loaded.
        _refuse(token, token.distrust(), typed)
        subject = load_subject(
            token.job, token.params, lambda content: _refuse(token, token.distrust_content(content), typed)
        )
    else:
        subject = load_subject(job, token.params)
    token.check(subject)
    return NamedRun(subject, token, invariant)


def write_token(directory: str, number: int, token: Token) -> str:
    """Write the token of a search's failure into a file of its own in ``directory``, which is made; gives its path."""
    files = LocalFileSystem()
    files.make_dirs(directory)
    path = os.path.join(directory, f"token-{number}.txt")
    with files.open_write(path) as file:
        file.write(f"{token}\n".encode())
    return path


def _is_file(name: str) -> bool:
    # No token has a slash in it.
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
