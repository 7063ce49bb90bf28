"""Errors as people see them, and the exit code of each.

A user's mistake or a damaged world is printed as what, where, why and how to fix it, without a traceback
(``WEIR_TRACEBACK=1`` shows it). A broken invariant is a bug of Weir, and a bug shows everything.
"""

from __future__ import annotations

import errno
import os
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from engine.cli.shell.endings import EXIT_INTERRUPTED
from engine.cli.shell.start_up import PACKAGES
from engine.elements.errors import (
    EXIT_TOOL_ERROR,
    ForbiddenCallError,
    StateError,
    StorageError,
    UserFunctionError,
    WeirError,
)

EXIT_CODES = """\
0  valid       the job finished and kept what its mode promises
1  violated    a completed checkpoint is not the cut that the mode promises
2  unknown     nothing could be judged
3  tool error  a bug of Weir
10 the job graph cannot run          16 storage: in use, not writable, nothing usable in it
11 wrong usage: no such option, value 17 the job does not fit the state to restore
12 a user's function raised          18 the job failed and may not restart
13 a malformed record                19 the job file cannot be loaded
14 a key of another type             20 something is not installed
15 state: cannot be read or written  21 an external system has lost what was to be committed
22 a user's function made a call that no replay repeats (--paranoid)
23 a sink has committed more than what the job would go on from
24 the state of an operator is not what the operator writes
25 Spark: it does not start, its executors cannot run the job, or it gave up
26 more records come than the job can handle
27 a worker process died, or failed at its work
130 interrupted (Ctrl-C)             143 terminated (SIGTERM)"""


def exit_code_of_failure(error: BaseException) -> int:
    """The exit code of an error that ends the command, whichever package raised it."""
    from engine.report.verdict import exit_code_of
    from state_backends.base import MissingStateError, StateBackendError, StorageInUseError, StorageNotWritableError

    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, MissingStateError | StorageInUseError | StorageNotWritableError):
        return StorageError.exit_code
    if isinstance(error, StateBackendError):
        return StateError.exit_code
    if _is_full_disk(error):
        return StorageError.exit_code
    return exit_code_of(error)


def is_expected(error: BaseException) -> bool:
    """Whether the error is about the world or the user's job, and not about Weir."""
    from state_backends.base import StateBackendError

    return isinstance(error, WeirError | StateBackendError) or _is_full_disk(error)


def _is_full_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def failure_text(error: BaseException) -> str:
    """The whole message about an error, several lines, without a final newline."""
    if not is_expected(error):
        return _bug_text(error)
    lines = [f"error: {error}"]
    if isinstance(error, OSError):
        where = error.filename or "a file"
        lines = [f"error: {where}: cannot be written ({error.strerror})", "  fix: make room for it"]
    said = str(error)
    places = _place(error)
    for cause in _causes(error):
        if isinstance(cause, UserFunctionError) or is_expected(cause):
            if str(cause) not in said:
                lines.append(f"  because {cause}")
                said += str(cause)
        else:
            places += _place(cause)
    lines += dict.fromkeys(places)
    lines += [f"  {note}" for note in getattr(error, "__notes__", ())]
    if os.environ.get("WEIR_TRACEBACK") == "1":
        # The error of a job was never raised: it has no lines of its own, and its text stands above.
        raised = error if error.__traceback__ is not None else error.__cause__ or error
        lines.append("".join(traceback.format_exception(raised)).rstrip())
    elif error.__cause__ is not None:
        lines.append("  WEIR_TRACEBACK=1 shows the traceback")
    return "\n".join(lines)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = [error]
    cause = error.__cause__
    # An error that was raised from itself would be an endless chain.
    while cause is not None and not any(cause is one for one in seen):
        if not any(isinstance(cause, ForbiddenCallError) and isinstance(one, ForbiddenCallError) for one in seen):
            yield cause
        seen.append(cause)
        cause = cause.__cause__


def _place(error: BaseException) -> list[str]:
    """The last line of the user's own code on the way to the error: the line to look at.

    Lines of Weir, of the standard library and of installed packages are left out: the message says what happened
    there, and the user would not change them.
    """
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _is_the_users(one.filename)]
    if not frames:
        return []
    last = frames[-1]
    return [f"  at {last.filename}:{last.lineno}, in {last.name}: {last.line or ''}".rstrip(": ")]


@cache
def _is_the_users(file_name: str) -> bool:
    # Names in angle brackets are not files (frozen modules, text given to exec); nor are the relative names that
    # Cython compiles into a package ("pyarrow/error.pxi").
    if {"site-packages", "dist-packages"} & {*Path(file_name).parts} or not Path(file_name).is_absolute():
        return False
    own = Path(__file__).resolve().parents[3]
    foreign = [*(own / package for package in PACKAGES), Path(sysconfig.get_path("stdlib"))]
    # A checkout is imported through links, see Makefile.
    places = Path(file_name), Path(file_name).resolve()
    return not any(place.is_relative_to(one) for place in places for one in foreign)


def _bug_text(error: BaseException) -> str:
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{trace}\nerror: this is a bug of Weir, not of your job (exit code {EXIT_TOOL_ERROR})"
