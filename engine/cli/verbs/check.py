"""``weir check``: try every schedule and every crash of a small job."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

import engine
from engine.cli.cases import load_subject_and_scenario, write_case_page, write_token
from engine.cli.runs import failure_directory, report_json, write_text
from engine.cli.settings import html_option, modes as mode_names, parse_params, setting_options
from engine.cli.shell import AtLeast, OneOf
from engine.cli.text import error_console, job_output_dropped, progress_of, say
from engine.cli.verbs.explore import settings_of_cases
from engine.explore.cases import FIFO, Case, Scenario, Setting
from engine.explore.run import Subject
from engine.explore.search import Token
from engine.report.units import format_count
from engine.runtime.config import parse_duration_ns

if TYPE_CHECKING:
    from engine.explore.check import CheckOrder, CheckReport, Found

_HELP = """Try every schedule and every crash of the job that JOB defines, and judge how each of them ends.

For jobs of a few records: the number of schedules grows with each. What a job file says in SCENARIO holds unless an
option says otherwise. The wrong ending that is told has the fewest faults.

\b
Examples:
  weir check counting.py
  weir check counting.py --mode at-least-once
  weir check counting.py --crashes 2 --checkpoints 2 --time 5m
  weir check counting.py --promise at-least-once --json
"""

DEFAULT_PROMISE, DEFAULT_STATES, DEFAULT_TIME = "exactly-once", 200_000, "60s"
_CALM: dict[str, Setting] = {"batch_size": 1, "cost.source_record_ns": 0}
"""Everything happens at one instant and record by record, so that every order is a schedule."""


@click.command("check", help=_HELP)
@click.argument("job_file", metavar="JOB")
@click.option("--mode", type=OneOf(mode_names()), help="How checkpoints are taken. [default: the job file's]")
@click.option(
    "--promise",
    type=OneOf(["exactly-once", "at-least-once", "at-most-once", "none"]),
    default=DEFAULT_PROMISE,
    show_default=True,
    help="What the output is judged by.",
)
@click.option("--crashes", type=AtLeast(0), help="How many faults strike at most. [default: the job file's, or 1]")
@click.option(
    "--checkpoints",
    type=AtLeast(0),
    help="So many checkpoints, each of which begins at any moment. [default: the job file's, or 1]",
)
@click.option(
    "--savepoint",
    "savepoints",
    multiple=True,
    type=OneOf(["savepoint", "stop", "drain", "cancel"]),
    help="A savepoint at any moment: the job goes on, or it stops, is drained or cancelled and another one goes on."
    " Repeatable. [default: the job file's, or none]",
)
@click.option(
    "--faults",
    "kinds",
    multiple=True,
    type=OneOf(["crash", "lose", "duplicate"]),
    help="What may strike: a crash, or a message between job manager and task that is lost or comes twice. Repeatable."
    " [default: crash]",
)
@click.option(
    "--max-states",
    type=AtLeast(1),
    default=DEFAULT_STATES,
    show_default=True,
    help="Stop the search when it has kept so many states.",
)
@click.option(
    "--time",
    "duration",
    metavar="TIME",
    default=DEFAULT_TIME,
    show_default=True,
    help="Stop the search after this long by the wall clock.",
)
@setting_options
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@click.option("--no-reduction", is_flag=True, help="Branch at every event, whether it makes a difference or not.")
@click.option(
    "--out", metavar="DIR", help="Write the report of a wrong ending to DIR. [default: out/<job>/failures/<number>]"
)
@html_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON on standard output.")
def command(
    job_file: str,
    mode: str | None,
    promise: str,
    crashes: int | None,
    checkpoints: int | None,
    savepoints: tuple[str, ...],
    kinds: tuple[str, ...],
    max_states: int,
    duration: str,
    definitions: tuple[str, ...],
    config_file: str | None,
    params: tuple[str, ...],
    no_reduction: bool,
    out: str | None,
    html: str | None,
    as_json: bool,
) -> int:
    from engine.explore.check import CheckOrder, check

    console = error_console()
    with job_output_dropped():
        subject, scenario = load_subject_and_scenario(job_file, parse_params(params))
    settings = settings_of_cases(definitions, config_file)
    if mode is not None:
        settings.pop("mode", None)
    order = CheckOrder(
        _case(scenario, mode, checkpoints, savepoints or scenario.savepoints, settings),
        faults=scenario.crashes if crashes is None else crashes,
        kinds=kinds or ("crash",),
        max_states=max_states,
        seconds=parse_duration_ns(duration, "--time") / 1e9,
        reduction=not no_reduction,
    )
    say(
        console,
        f"weir {engine.__version__} (Python {platform.python_version()}): checking job {subject.label}, mode"
        f" {order.case.config['mode']}: every schedule, up to {_counted(order.faults, 'fault')}",
    )

    def how_far(found: Found) -> str:
        return _how_far(found, order)

    with progress_of(console, how_far) as progress, job_output_dropped():
        report = check(subject, order, promise, progress)
    given = _given(promise, checkpoints, savepoints, kinds, definitions, reduction=not no_reduction)
    given += [] if config_file is None else ["--config", config_file]
    if html is not None:
        _write_page(html, subject, order, report)
    return _tell(subject, order, report, given, out=out, as_json=as_json)


def _write_page(html: str, subject: Subject, order: CheckOrder, report: CheckReport) -> None:
    """The page of the wrong ending, or of a run without faults, with all endings as a picture."""
    found, (name, reason, _) = report.found, report.verdict
    endings = [
        {
            "state": one.state,
            "faults": one.faults,
            "events": len(one.path),
            "wrong": one is report.wrong,
            "rows": "; ".join(f"{where}: {', '.join(rows)}" for where, rows in one.committed)[:400],
        }
        for one in found.endings
    ]
    wrong = "none" if report.wrong is None else "at least one"
    text = f"{found.states:,} states, {len(endings)} endings, {wrong} wrong"
    case = replace(order.case, scheduler=FIFO) if report.witness is None else report.witness
    violations = () if report.confirmed is None or report.witness is None else report.confirmed.violations
    lines = [(f"verdict {name}", f"{name}: {reason}"), ("soft", text)]
    write_case_page(html, subject, case, violations, lines, {"text": text, "list": endings}, promise=report.promise)
    say(error_console(), f"page in {html}")


def _how_far(found: Found, order: CheckOrder) -> str:
    """The work of a search so far, and its progress towards the limit that it will reach first."""
    states, seconds = found.states / order.max_states, found.seconds / order.seconds
    bound = f"{seconds:.0%} of {order.seconds:g} s"
    if states > seconds:
        bound = f"{states:.0%} of {format_count(order.max_states)} states"
    return (
        f"{format_count(found.states)} states, {format_count(found.transitions)} passed, {format_count(found.frontier)}"
        f" to try, {_counted(found.struck, 'fault')}; {found.seconds:.0f} s; {bound}"
    )


def _given(
    promise: str,
    checkpoints: int | None,
    savepoints: Sequence[str],
    kinds: Sequence[str],
    settings: Sequence[str],
    *,
    reduction: bool,
) -> list[str]:
    """The options that a further search of the same job needs, besides its limits."""
    given = [] if promise == DEFAULT_PROMISE else ["--promise", promise]
    given += [] if checkpoints is None else ["--checkpoints", str(checkpoints)]
    given += [word for kind in savepoints for word in ("--savepoint", kind)]
    for option, values in (("--faults", kinds), ("--set", settings)):
        for value in values:
            given += [option, value]
    return given + ([] if reduction else ["--no-reduction"])


def _case(
    scenario: Scenario, mode: str | None, checkpoints: int | None, savepoints: Sequence[str], fixed: dict[str, Setting]
) -> Case:
    from engine.explore.cases import Savepoint

    case = replace(scenario.case(mode), savepoints=tuple(Savepoint(kind, 0) for kind in savepoints))
    config = {**case.config, **_CALM, **fixed}
    if "checkpoint_interval" in fixed and checkpoints is None:
        return replace(case, config=config)
    config.pop("checkpoint_interval", None)
    number = checkpoints if checkpoints is not None else scenario.checkpoints
    return replace(case, config=config, checkpoints=(0,) * (1 if number is None else number))


def _tell(
    subject: Subject, order: CheckOrder, report: CheckReport, given: Sequence[str], *, out: str | None, as_json: bool
) -> int:
    console, found = error_console(), report.found
    name, reason, exit_code = report.verdict
    token, following = None, _next(subject, order, report, given)
    if report.witness is not None:
        token, following = _explain(subject, report, failure_directory(subject.label, out))
    seconds = max(found.seconds, 1e-9)
    say(
        console,
        f"states={found.states} transitions={found.transitions} kept={found.states / max(1, found.transitions):.3f}"
        f" faults_tried={found.struck} frontier={found.frontier} endings={len(found.endings)}"
        f" outputs_without_faults={report.outputs}"
        f" seconds={found.seconds:.2f} states_per_s={found.states / seconds:.0f}"
        f" transitions_per_s={found.transitions / seconds:.0f} reference={report.judged_by.replace(' ', '-')}",
    )
    if report.own_promise != report.promise:
        holds = "holds in all endings" if report.own_wrong is None else "does not hold either"
        if report.own_wrong is None and not found.is_complete:
            holds = "held in all endings so far"
        say(console, f"what mode {order.case.config['mode']} promises, {report.own_promise}, {holds}")
    plain = {**report.plain(), "job": subject.label, "token": None if token is None else str(token)}
    if out is not None:
        write_text(out, "check.json", report_json(plain))
    if as_json:
        click.echo(report_json(plain))
    say(console, f"{name}: {reason}. Next: {following}")
    return exit_code


@job_output_dropped()
def _explain(subject: Subject, report: CheckReport, place: str) -> tuple[Token, str]:
    """Print the way to the wrong ending, and write it to a file; returns its token, and the argument to replay it."""
    from engine.explore.failures import failure_report
    from engine.explore.search import Token
    from engine.explore.shrink import WAITING
    from engine.explore.story import tell

    console = error_console()
    assert report.witness is not None
    assert report.wrong is not None
    explained = failure_report(
        subject, report.witness, report.meant, promise=report.promise, budget=WAITING, place=place
    )
    if explained is not None:
        say(console, explained.text)
        explained.write(place)
        return Token.of(subject, explained.case, promise=report.promise), explained.command
    # The job depends on the order of its records: a single run cannot show that this output is wrong.
    story, _, _ = tell(subject, report.witness)
    for line in story.lines():
        say(console, line)
    for where, rows in report.wrong.committed:
        say(console, f"readers of {where} see {', '.join(rows)}: no run without faults shows that")
    token = Token.of(subject, report.witness, promise=report.promise)
    return token, token.command("replay", subject, write_token(place, 1, token))


def _next(subject: Subject, order: CheckOrder, report: CheckReport, given: Sequence[str]) -> str:
    """The same search with one more fault, or with a higher limit where it was stopped."""
    from engine.explore.check import STATES

    assert subject.path is not None
    command = ["weir", "check", subject.path, "--mode", str(order.case.config["mode"])]
    for name, value in subject.params.items():
        command += ["--param", f"{name}={value}"]
    command += given
    if report.found.is_complete:
        return shlex.join([*command, "--crashes", str(order.faults + 1)])
    is_time = report.found.stopped_by != STATES
    bounds = ["--time", f"{order.seconds * (10 if is_time else 1):g}s"]
    if not is_time or order.max_states != DEFAULT_STATES:
        bounds += ["--max-states", str(order.max_states * (1 if is_time else 10))]
    return shlex.join([*command, "--crashes", str(order.faults), *bounds])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
