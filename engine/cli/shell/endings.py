"""Ways to end a command from outside: its reader closes the pipe, it gets SIGTERM, its standard streams are closed.

The exceptions for this are not an ``Exception``: they pass through the functions of a job, which would be retried, and
through libraries with their own handling (click and rich exit with 1, which means *violated* here).
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from engine.elements.errors import StorageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143
"""The codes that shells expect of a program that ended on Ctrl-C, and on SIGTERM."""

_STDERR = 2


class ReaderGone(BaseException):
    """The reader of standard output or standard error has gone (``weir inspect … | head``)."""


class Terminated(BaseException):
    """The process was sent SIGTERM."""


class _Output(io.FileIO):
    """Standard output or error, which reports why it cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise ReaderGone from None
            if self.fileno() == _STDERR:
                return len(memoryview(data))  # there is nowhere left to say so, and no data are lost
            raise StorageError(
                f"standard output: cannot be written ({error.strerror})\n"
                "  fix: make room where it leads to, or lead it elsewhere"
            ) from error


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make the streams notice that their reader has gone; a stream that is closed at the start discards its data.

    Streams that other code has replaced, a test for instance, stay unchanged.
    """
    before = sys.stdout, sys.stderr
    if None in before:
        for descriptor in range(_STDERR + 1):
            # Otherwise the next opened file would get the number, and with it the output of other programs.
            with suppress(OSError):
                os.fstat(descriptor)
                continue
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = _watched(sys.stdout, sys.__stdout__)
    sys.stderr = _watched(sys.stderr, sys.__stderr__)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (ReaderGone, StorageError):
                # Buffered data must go somewhere, or the interpreter complains at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                stream.flush()
        sys.stdout, sys.stderr = before


def _watched(stream: TextIO | None, original: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream
    # Characters that the encoding does not have are escaped, as in JSON: they are no reason to fail.
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, errors, line_buffering=stream.line_buffering)


def flush_streams() -> None:
    """Write out all buffered data, while an error can still be reported."""
    sys.stdout.flush()
    sys.stderr.flush()


@contextmanager
def termination() -> Iterator[None]:
    """Make SIGTERM raise :class:`Terminated` inside the block, unless the process ignores it or handles it itself."""
    is_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_number: int, _frame: Any) -> None:
    raise Terminated
