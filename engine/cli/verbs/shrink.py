"""``weir shrink``: make a failing run as small as possible, and tell what happens in it."""

from __future__ import annotations

import json
import os
import shlex

import click

from engine.cli.cases import open_run
from engine.cli.shell import AtLeast
from engine.cli.text import job_output_dropped
from engine.elements.errors import EXIT_UNKNOWN, EXIT_VIOLATED
from engine.explore.failures import TEST_NAME, failure_report
from engine.explore.shrink import Budget
from engine.runtime.config import parse_duration_ns

_HELP = """Shrink a failing run, and report it.

RUN is the directory of a failure report, its failure.json, or a replay token. Records, faults, checkpoints and choices
of the schedule are removed, and settings put back to their defaults, as long as the same invariant is violated. Then
each single thing that is left is removed once more, to show that the run is minimal.

\b
Examples:
  weir shrink failure/
  weir shrink weir2.9xQ… --out failure/        the report, a picture, a regression test
  weir shrink failure/ --runs 2000 --time 60s

The exit code is 1 when the failure stands, 2 when the run does not fail (any more).
"""


@click.command("shrink", help=_HELP)
@click.argument("run", metavar="RUN")
@click.option("--job", metavar="PATH", help="The job file, when it has changed or lies elsewhere.")
@click.option("--promise", metavar="NAME", help="Judge the output by another promise, such as exactly-once.")
@click.option("--runs", type=AtLeast(1), default=300, show_default=True, help="Runs of the job at most.")
@click.option("--time", "duration", default="10s", show_default=True, metavar="TIME", help="Time it may take.")
@click.option("--out", metavar="DIR", help="Write failure.txt, .json, .html and test_regression.py here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every choice of the run.")
def command(
    run: str, job: str | None, promise: str | None, runs: int, duration: str, out: str | None, as_json: bool
) -> int:
    budget = Budget(runs, parse_duration_ns(duration, "--time") / 1e9)
    report = None
    with job_output_dropped():
        named = open_run(run, job, ["shrink", run], promise)
        if named.violation is not None:
            report = failure_report(
                named.subject,
                named.case,
                named.violation,
                promise=named.promise,
                budget=budget,
                place=None if out is None else os.path.join(out, ""),
            )
    if report is None:
        click.echo("unknown: the run does not fail (any more), so there is nothing to shrink")
        return EXIT_UNKNOWN
    click.echo(json.dumps(report.to_plain(), indent=1, ensure_ascii=False) if as_json else report.text)
    if out is not None:
        for path in report.write(out):
            click.echo(f"wrote {path}", err=True)
        click.echo(f"next: {shlex.join(['pytest', os.path.join(out, TEST_NAME)])}", err=True)
    return EXIT_VIOLATED
