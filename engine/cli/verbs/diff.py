"""``weir diff``: find what makes the difference between a failing run and one that passes, or between any two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from engine.cli.cases import OpenedRun, crash_command, open_run, write_case_page
from engine.cli.settings import html_option
from engine.cli.shell import AtLeast
from engine.cli.text import job_output_dropped
from engine.elements.errors import EXIT_UNKNOWN, EXIT_VALID, EXIT_VIOLATED, ConfigurationError
from engine.explore.cases import Case
from engine.explore.failures import DEFAULT_BUDGET, compare_cases, nearest_passing, standard_invariants
from engine.explore.run import Violation
from engine.explore.search import job_fingerprint
from engine.explore.shrink import WAITING, Budget, shorter_bounds

_HELP = """Say at which event two runs part, and what comes of it.

RUN and OTHER are directories of failure reports, their failure.json, or replay tokens. Without OTHER, RUN is compared
with the nearest run that passes: one fault, choice, checkpoint or record less or otherwise, and the same for as long as
possible.

\b
Examples:
  weir diff failure/
  weir diff weir2.9xQ… weir2.Mz0…

The exit code is 1 when RUN fails, or the two are not the same run; 2 when RUN alone does not fail (any more).
"""


@click.command("diff", help=_HELP)
@click.argument("run", metavar="RUN")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option("--job", metavar="PATH", help="The job file, when it has changed or lies elsewhere.")
@html_option
@click.option("--runs", type=AtLeast(1), default=DEFAULT_BUDGET.runs, show_default=True, help="At most.")
def command(run: str, other: str | None, job: str | None, html: str | None, runs: int) -> int:
    typed = ["diff", run, *([] if other is None else [other])]
    with job_output_dropped():
        named = open_run(run, job, typed)
        compared = None if other is None else open_run(other, job, typed)
    if compared is not None:
        return _compare(named, compared, html)
    if named.violation is None:
        click.echo("unknown: the run does not fail (any more); name another one to compare it with")
        return EXIT_UNKNOWN
    click.echo(f"violated {named.violation}")
    budget = Budget(runs, WAITING.seconds)
    judges = standard_invariants(named.promise)
    with job_output_dropped():
        bounds = shorter_bounds(named.subject, named.case, named.violation)
        difference = nearest_passing(named.subject, named.case, judges, budget=budget, bounds=bounds)
    if difference is None or difference.change is None:
        click.echo(f"no run that passes was found among {runs} that differ in one thing; weir shrink makes it smaller")
        if html is not None:
            lines = [("soft", "No run beside it passes.")]
            write_case_page(html, named.subject, named.case, (named.violation,), lines, promise=named.promise)
            click.echo(f"page of this run alone in {html}")
    else:
        click.echo(f"the nearest passing run: {difference.change.text}")
        click.echo(difference.describe("this run", "passing"))
        if html is not None:
            passing = ("the nearest run that passes", difference.change.case, ())
            _write_page(html, named, [("this run", named.case, (named.violation,)), passing], difference.change.text)
    return EXIT_VIOLATED


def _write_page(
    html: str, run: OpenedRun, cases: Sequence[tuple[str, Case, Sequence[Violation]]], change: str
) -> None:
    from engine.view import cases_page, write_page

    with job_output_dropped():
        crash = partial(crash_command, run.subject, run.promise)
        text = cases_page(f"{run.subject.label}: two runs", run.subject, cases, [("why", change)], crash=crash)
    write_page(html, text)
    click.echo(f"page of both in {html}")


def _compare(one: OpenedRun, other: OpenedRun, html: str | None) -> int:
    if job_fingerprint(one.subject) != job_fingerprint(other.subject):
        raise ConfigurationError(
            f"the two runs are of different jobs ({one.subject.path} and {other.subject.path}); only runs of one job"
            " can be compared event by event"
        )
    with job_output_dropped():
        difference = compare_cases(one.subject, one.case, other.case)
    click.echo(difference.describe("first", "second"))
    if html is not None:
        named = (("first", one), ("second", other))
        cases = [(name, run.case, () if run.violation is None else (run.violation,)) for name, run in named]
        _write_page(html, one, cases, difference.describe("first", "second"))
    for name, run in (("first", one), ("second", other)):
        click.echo(f"{name}: {'no violation' if run.violation is None else run.violation}")
    return EXIT_VALID if difference.same else EXIT_VIOLATED
