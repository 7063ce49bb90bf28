"""The display while a run is on: consoles on standard error, and a progress line on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from textwrap import wrap
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec

from rich.console import Console
from rich.progress import Progress as ProgressBar, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from engine.report.units import format_count, format_ns

if TYPE_CHECKING:
    from engine.runtime.execution import Progress

_Seen = ParamSpec("_Seen")

_SHOW_EVERY_SECONDS, _SAY_EVERY_SECONDS = 0.1, 10.0
"""How often the line of a search changes on a terminal, and how often a log gets another one."""

_WIDTH_WITHOUT_TERMINAL = 170
"""Tables in log files are not folded to the 80 columns that rich assumes."""


def error_console() -> Console:
    """The console for people, on standard error. rich drops colours with ``NO_COLOR`` or without a terminal."""
    console = Console(stderr=True, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(stderr=True, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    return console


_NEXT = "Next: "


def say(console: Console, text: str) -> None:
    """Print text unchanged: names in brackets (``count[1]``) are not markup.

    In a log a line stays a line. On a terminal it is broken between words, except for the command to type next: that is
    a line of its own, and whole, to be copied.
    """
    if console.is_terminal:
        told, _, command = text.partition(_NEXT)
        lines = [part for line in told.splitlines() or [""] for part in _broken(line.rstrip(), console.width)]
        text = "\n".join([*lines, *([_NEXT + command] if command else [])])
    console.print(Text(text), soft_wrap=True)


def _broken(line: str, width: int) -> list[str]:
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    return wrap(line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False) or [""]


@contextmanager
def stdout_kept_clean(as_json: bool) -> Iterator[None]:
    """With ``as_json`` the job's own prints go to standard error: standard output holds the report only."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def job_output_dropped() -> Iterator[None]:
    """Around a search: the prints of thousands of runs are unreadable. ``weir replay`` shows those of one run."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def progress_of(
    console: Console, how_far: Callable[_Seen, str], *, forks: bool = False
) -> Iterator[Callable[_Seen, None]]:
    """Show the progress of a search: a line that changes, or one now and then in a log.

    ``forks``: this process forks meanwhile. Then no thread draws the line: a lock that it held would stay locked in a
    child that writes to standard error.

    Gives the function that the search calls with its progress. It may be called as often as the search likes: most
    calls only look at the clock. ``how_far`` turns the progress into the line.
    """
    told = monotonic()

    def told_within(seconds: float) -> bool:
        nonlocal told
        now = monotonic()
        is_soon = now - told < seconds
        told = told if is_soon else now
        return is_soon

    def telling(every_s: float, tell: Callable[[str], object]) -> Callable[_Seen, None]:
        def told_of(*args: _Seen.args, **kwargs: _Seen.kwargs) -> None:
            if not told_within(every_s):
                tell(how_far(*args, **kwargs))

        return told_of

    if not console.is_terminal:
        yield telling(_SAY_EVERY_SECONDS, partial(say, console))
        return
    with ProgressBar(SpinnerColumn(), TextColumn("{task.description}", markup=False), console=console,
                     transient=True, auto_refresh=not forks, redirect_stderr=not forks) as bar:  # fmt: skip
        line = bar.add_task("starting", total=None)
        yield telling(_SHOW_EVERY_SECONDS, lambda text: bar.update(line, description=text, refresh=forks))


@contextmanager
def progress_line(console: Console, started_ns: Callable[[], int]) -> Iterator[Callable[[Progress], None] | None]:
    """Show the progress of a run; gives the function to pass to the run, ``None`` without a terminal.

    Virtual time counts from ``started_ns()``: a run that resumes from a checkpoint starts at its time.
    """
    if not console.is_terminal:
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        line = bar.add_task("starting", total=None)

        def show(progress: Progress) -> None:
            bar.update(
                line,
                description=(
                    f"+{format_ns(progress.virtual_ns - started_ns())} virtual,"
                    f" {format_count(progress.source_records)} records,"
                    f" {progress.checkpoints_completed} checkpoints, attempt {progress.attempt}"
                ),
            )

        yield show
