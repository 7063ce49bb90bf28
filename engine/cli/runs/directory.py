"""Run directories: the place of a run's output, so that no run overwrites another.

Without ``--storage`` and ``--out`` every run gets ``out/<job>/<number>/``, the next free number, and
``out/<job>/latest`` points to it. ``--out DIR`` is exactly that directory; it may exist and hold other files, but
not another run's ``run.json``: the committed files of two runs in one place would be the output of neither.
Reports of failures are numbered in the same way, in ``out/<job>/failures/``.
``run.json`` is written at the start, as *running*, so that even a run that was killed keeps its directory.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from engine.elements.errors import StorageError
from state_backends.base import CHECKSUM, parse_json, seal_json, unseal_json
from state_backends.files import LocalFileSystem, write_atomically

DEFAULT_ROOT = "out"
LATEST_LINK = "latest"
REPORT_NAME = "run.json"


def next_run_directory(job_name: str, root: str = DEFAULT_ROOT) -> str:
    """Create ``<root>/<job>/<number>``, point ``latest`` at it, and return its absolute path. Raises
    :class:`StorageError` when that fails."""
    parent = Path(root).absolute() / job_name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            number = 1 + max((int(one.name) for one in parent.iterdir() if one.name.isdecimal()), default=0)
            directory = parent / str(number)
            try:
                directory.mkdir()
            except FileExistsError:
                continue  # another run took the number in between
            _point_latest_at(directory)
            return str(directory)
    except OSError as error:
        raise _not_writable(str(parent), error) from error


def claim_directory(directory: str, continues: str | None = None) -> str:
    """Create ``directory`` for one run and return its absolute path. ``continues``: the name of a job that resumes
    from a snapshot, and may continue the output of a run of the same job.

    Raises :class:`StorageError` when it cannot be created or belongs to another run.
    """
    path = Path(directory).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(str(path), error) from error
    if (path / REPORT_NAME).exists() and (continues is None or read_report(directory)[0] != continues):
        raise StorageError(
            f"{directory}: holds the output of another run ({REPORT_NAME})\n"
            "  fix: choose a new directory, or delete this one if you do not need it any more"
        )
    return str(path)


def read_report(directory: str) -> tuple[str, int]:
    """The name and the incarnation of the job whose output a run directory holds.

    Raises :class:`StorageError` when its ``run.json`` is damaged: a run that continues there might reuse names that
    are taken.
    """
    path = f"{directory}/{REPORT_NAME}"
    try:
        text = Path(path).read_text(encoding="utf-8")
        report = parse_json(text)
        # Older versions wrote no checksum.
        report = unseal_json(text) if CHECKSUM in report else report
        name, incarnation = report["job"]["name"], report["run"]["incarnation"]
        if type(name) is not str or type(incarnation) is not int:
            raise TypeError(f"job {name!r}, incarnation {incarnation!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path}: is damaged ({error}), so what is in this directory cannot be told\n"
            "  fix: restore the file from a copy, or choose a new directory by --out"
        ) from error
    return name, incarnation


def failure_directory(job_name: str, out: str | None) -> str:
    """The directory for a failure's report, as a user would type it: ``out``, or ``out/<job>/failures/<number>``.
    Raises :class:`StorageError` when the latter cannot be created."""
    if out is None:
        out = os.path.relpath(next_run_directory(os.path.join(job_name, "failures")))
    return os.path.join(out, "")


def write_report(directory: str, report: dict[str, Any]) -> str:
    """Write ``run.json``, replacing an earlier one of the same run; returns its path. Raises :class:`StorageError` when
    it cannot be written."""
    return write_text(directory, REPORT_NAME, seal_json(report))


def write_text(directory: str, name: str, text: str) -> str:
    """Write a file into a directory, which is created if missing; returns the path. Raises :class:`StorageError` when
    it cannot be written."""
    path = f"{directory}/{name}"
    try:
        os.makedirs(directory, exist_ok=True)
        write_atomically(LocalFileSystem(), path, text.encode())
    except OSError as error:
        raise _not_writable(path, error) from error
    return path


def report_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=2, ensure_ascii=False)


def _point_latest_at(directory: Path) -> None:
    """Replace the link in one step: at every moment it leads to a run."""
    temporary = directory.parent / f".{LATEST_LINK}-{directory.name}"
    try:
        temporary.symlink_to(directory.name)
        os.replace(temporary, directory.parent / LATEST_LINK)
    except OSError:
        # The link is a convenience; file systems without links (or a real directory of that name) have none.
        temporary.unlink(missing_ok=True)


def _not_writable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be written ({error.strerror or error})\n"
        "  fix: choose a directory that you may write to, with free space, by --out"
    )
