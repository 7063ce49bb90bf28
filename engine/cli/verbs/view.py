"""``weir view``: the page of a run that was made before, or its trace for Perfetto, by making it again."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from engine.cli.cases import NamedRun, resolve, write_case_page
from engine.cli.runs import REPORT_NAME, EarlierRun, RunOrder, drive, earlier_run
from engine.cli.settings import html_option, load_job, perfetto_option
from engine.cli.text import error_console, job_output_dropped, say
from engine.elements.errors import EXIT_VALID, ConfigurationError
from engine.explore.failures import JSON_NAME

if TYPE_CHECKING:
    from engine.explore.run import Violation

DEFAULT_PAGE = "view.html"
_HELP = f"""Write a page about a run that was made before: it opens offline, and steps through the run.

RUN is the directory of a run (with its run.json), its trace, the directory of a failure report, or a replay token. A
run is deterministic, so it is made again, in a directory of its own, and the page is of that. The page is
{DEFAULT_PAGE} if neither --html nor --perfetto names a file.

\b
Examples:
  weir view out/wordcount/latest
  weir view out/wordcount/failures/1 --html failure.html
  weir view out/wordcount/latest --perfetto wordcount.pftrace
  weir view weir2.xxxxxxxx --job here/wordcount.py
"""


@click.command("view", help=_HELP)
@click.argument("run", metavar="RUN")
@html_option
@perfetto_option
@click.option("--job", "job_file", metavar="PATH", help="The job file, when it has changed or lies elsewhere.")
def command(run: str, html: str | None, perfetto: str | None, job_file: str | None) -> int:
    html = DEFAULT_PAGE if html is None and perfetto is None else html
    earlier = earlier_run(run)
    if earlier is not None:
        return _again(earlier, html, perfetto, job_file)
    _check_is_failure(run)
    with job_output_dropped():
        named = resolve(run, job_file, ["view", run])
        violations = _case_again(named, perfetto)
    if html is not None:
        case = named.token.to_case(named.subject)
        lines = [("soft", f"weir replay {run}")]
        write_case_page(html, named.subject, case, violations, lines, promise=named.token.promise)
    _tell(html, perfetto)
    return EXIT_VALID


def _case_again(named: NamedRun, perfetto: str | None) -> Sequence[Violation]:
    from engine.explore.invariants import invariants_for
    from engine.explore.run import run_case
    from engine.view import perfetto_trace

    case = named.token.to_case(named.subject)
    with ExitStack() as stack:
        parallelism: Any = case.config.get("parallelism")
        plan = named.subject.plan(parallelism)
        traces = [] if perfetto is None else [stack.enter_context(perfetto_trace(perfetto, plan))]
        return run_case(named.subject, case, invariants_for(named.token.promise), instruments=traces).violations


def _again(earlier: EarlierRun, html: str | None, perfetto: str | None, job_file: str | None) -> int:
    options = earlier.options
    loaded = load_job(
        job_file or earlier.job_file, earlier.params, options.number("parallelism"), options.number("max_parallelism")
    )
    with tempfile.TemporaryDirectory(prefix="weir-view-") as place:
        code = drive(RunOrder(loaded, options, earlier.faults, place, False, None, html=html, perfetto=perfetto))
        made = earlier_run(place)
    if made is None or made.trace_digest != earlier.trace_digest:
        say(error_console(), "note: the run is another one than before: the job file, Weir or the input has changed")
    _tell(html, perfetto)
    return code


def _tell(html: str | None, perfetto: str | None) -> None:
    console = error_console()
    if perfetto is not None:
        say(console, f"trace in {perfetto}. Next: open it at https://ui.perfetto.dev")
    if html is not None:
        say(console, f"page in {html}. Next: open {shlex.quote(html)} in a browser")


def _check_is_failure(run: str) -> None:
    """Raise :class:`ConfigurationError` for a path that is nothing to view."""
    if os.path.isdir(run) and not os.path.isfile(os.path.join(run, JSON_NAME)):
        raise ConfigurationError(
            f"{run}: holds no {REPORT_NAME} and no {JSON_NAME}\n"
            "  fix: name the directory of a run, or of a failure report: weir view out/JOB/latest"
        )
    if os.sep in run and not os.path.exists(run):
        raise ConfigurationError(
            f"{run}: does not exist\n  fix: name the directory of a run, its trace, or a replay token"
        )
