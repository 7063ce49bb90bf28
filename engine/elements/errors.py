"""Everything that can go wrong in the world around a job, with the exit code the command line gives it.

Each error says what happened, where, why, and how to fix it. Broken invariants of Weir itself are ``AssertionError``.
"""

from __future__ import annotations

from typing import Any

EXIT_VALID, EXIT_VIOLATED, EXIT_UNKNOWN, EXIT_TOOL_ERROR = 0, 1, 2, 3


def shorten(value: object, limit: int = 200) -> str:
    """``repr(value)``, cut to ``limit`` characters, so that an error stays readable with any record."""
    try:
        text = repr(value)
    except Exception as error:
        # A user's own ``__repr__``, or a whole number of thousands of digits, which Python does not print.
        text = f"a value of type {type(value).__name__} that cannot be shown ({error})"
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


class WeirError(Exception):
    """Base of all errors that are not a bug of Weir."""

    exit_code = EXIT_TOOL_ERROR


class JobGraphError(WeirError):
    """The job graph cannot run; the message names the vertex."""

    exit_code = 10


class ConfigurationError(WeirError):
    """An option has a value that makes no sense, or two options contradict each other."""

    exit_code = 11


def check_whole(name: str, value: object, least: int = 1, *, or_none: bool = False) -> None:
    """Raises :class:`ConfigurationError` unless ``value`` is a whole number from ``least``, or an allowed ``None``."""
    if (type(value) is not int or value < least) and not (or_none and value is None):
        wanted = f"a whole number from {least}" + (", or None" if or_none else "")
        raise ConfigurationError(f"{name} is {shorten(value)}; it must be {wanted}")


NO_RECORD = object()
"""In place of the record, where a function is not called for one."""


def _line_of(record: Any) -> str:
    return "" if record is NO_RECORD else f"  record  {shorten(record)}\n"


class UserFunctionError(WeirError):
    """A user's function raised. Names the operator, the record and the attempt; the cause is chained."""

    exit_code = 12

    def __init__(self, operator: str, what: str, record: Any, attempt: int, cause: BaseException) -> None:
        self.operator, self.record, self.attempt = operator, record, attempt
        super().__init__(
            f"{what} of operator {operator!r} raised {type(cause).__name__}: {cause}\n"
            f"{_line_of(record)}  attempt {attempt}\n  fix the function"
            + ("" if record is NO_RECORD else f", or filter such records out before they reach {operator!r}")
        )


class MalformedRecordError(WeirError):
    """A line of a source file does not have the form that the format requires."""

    exit_code = 13

    def __init__(self, path: str, line_number: int, content: str, why: str) -> None:
        self.path, self.line_number, self.content = path, line_number, content
        super().__init__(
            f"{path}:{line_number}: {why}\n"
            f"  line    {shorten(content)}\n"
            "  fix the file, or read it with on_malformed='skip' or on_malformed='side_output'"
        )


class KeyTypeMismatchError(WeirError):
    """A key selector returned a key of another type than the stream's."""

    exit_code = 14


class StateError(WeirError):
    """State cannot be written, read back or assigned to the job."""

    exit_code = 15


class MalformedStateError(StateError):
    """The state that an operator, or its coordinator, finds in a checkpoint is not in the form it writes."""

    exit_code = 24

    def __init__(self, uid: str, checkpoint_id: int, what: str) -> None:
        super().__init__(
            f"operator {uid!r} cannot take over its state from checkpoint {checkpoint_id}: {what}\n"
            "  the state is not what this operator writes\n"
            "  fix: go on from another checkpoint, or give the operator another uid and let it begin anew"
        )


class StorageError(WeirError):
    """A storage directory is not writable, in use by another run, or holds nothing that can be restored."""

    exit_code = 16


class OutputAheadError(StorageError):
    """A sink has committed more than the checkpoint to go on from holds: no restart changes that."""

    exit_code = 23


class OverloadError(WeirError):
    """More records come than the job can handle: its queue grows for ever, and no restart changes that."""

    exit_code = 26


class JobChangedError(WeirError):
    """The job does not fit the state it shall be restored from; the message says uid by uid what is missing."""

    exit_code = 17


class JobFailedError(WeirError):
    """The job failed and its restart strategy allows no further attempt; the cause is chained."""

    exit_code = 18


class JobFileError(WeirError):
    """A job file cannot be loaded or defines no job."""

    exit_code = 19


class MissingDependencyError(WeirError):
    """Something that must be installed is not (a Python extra, Java)."""

    exit_code = 20


class DataLossError(WeirError):
    """Records that a completed checkpoint covers cannot be committed any more: an external system has dropped them."""

    exit_code = 21


class WorkerError(WeirError):
    """A worker process died, or its work raised an error: not one of the runs, whose errors are their results."""

    exit_code = 27


class AcknowledgementError(WeirError):
    """A function has settled a record twice, anchored a record to one that is settled, or settled something else. It
    would do so again after a restart."""


class ForbiddenCallError(WeirError):
    """A user's function has asked the real world for a value that no replay repeats."""

    exit_code = 22

    def __init__(self, call: str, where: str, code: str, why: str) -> None:
        self.call, self.where, self.code, self.why = call, where, code, why
        super().__init__(f"{where}: {call}() in a function of the job\n  code    {code}\n  {why}")

    def inside(self, operator: str, what: str, record: Any) -> ForbiddenCallError:
        """The same error, with the operator and the record that it came from."""
        told = ForbiddenCallError(self.call, self.where, self.code, self.why)
        told.args = (
            f"{self.where}: {what} of operator {operator!r} called {self.call}()\n"
            f"{_line_of(record)}"
            f"  code    {self.code}\n"
            f"  {self.why}",
        )
        return told
