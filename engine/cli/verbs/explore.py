"""``weir explore``: run a job thousands of times, each time with other schedules, settings and faults."""

from __future__ import annotations

import os
import platform
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import click

import engine
from engine.cli.cases import load_subject, load_subject_and_scenario, write_case_page, write_token
from engine.cli.runs import (
    check_search,
    failure_directory,
    report_json,
    results_file,
    search_on_spark,
    spread_option,
    write_text,
)
from engine.cli.settings import given_settings, html_option, modes as mode_names, parse_params, setting_options
from engine.cli.shell import AtLeast, OneOf
from engine.cli.text import (
    coverage_table,
    error_console,
    how_far,
    job_output_dropped,
    progress_of,
    report_plain,
    say,
    sometimes_table,
    summary_line,
)
from engine.elements.errors import ConfigurationError
from engine.explore.cases import FIFO, Case, Scenario, Setting
from engine.explore.failures import FailureReport
from engine.explore.run import Subject, Violation
from engine.explore.search import CampaignOrder, CampaignReport, Failure, Swarm, Token
from engine.runtime.config import parse_duration_ns, parse_where

_HELP = """Run the job that JOB defines very many times, each time with another schedule, other settings and faults, and
judge each run by every invariant.

Every run has a seed of its own. The first failure ends the search: it is replayed, shrunk and explained. Its report
goes to --out DIR, or to out/<job>/failures/<number>; weir replay, shrink and diff take that directory.

\b
Examples:
  weir explore wordcount.py
  weir explore wordcount.py --runs 100000 --jobs 8
  weir explore wordcount.py --runs 1000000 --on spark=spark://host:7077 --results runs.parquet
  weir explore wordcount.py --time 10m --mode aligned --mode unaligned --seed nightly
  weir explore wordcount.py --fault crash --fault rescale
  weir explore wordcount.py --savepoints all --fault none
  weir explore wordcount.py --set batch_size=1 --set checkpoint_interval=5rec
"""

DEFAULT_RUNS = 1_000

TMPFS = "/dev/shm"


@click.command("explore", help=_HELP)
@click.argument("job_file", metavar="JOB")
@click.option("--runs", type=AtLeast(1), help=f"Runs to make. [default: {DEFAULT_RUNS}, without --time]")
@click.option("--time", "duration", metavar="TIME", help="Stop after this long by the wall clock, e.g. 90s or 10m.")
@click.option("--jobs", type=AtLeast(1), help="Processes that make runs. [default: 1]")
@spread_option
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=OneOf(mode_names()),
    help="How checkpoints are taken: each run has one of these. Repeatable. [default: all that take checkpoints]",
)
@click.option("--seed", default="0", show_default=True, help="Seed of the search: a number or any text.")
@click.option(
    "--promise",
    type=OneOf(["exactly-once", "at-least-once", "at-most-once", "none"]),
    help="What the output is judged by. [default: what the mode of a run promises]",
)
@click.option(
    "--fault",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only faults of this kind. Repeatable; 'none' for no faults. [default: every kind that the job can have]",
)
@click.option(
    "--savepoints",
    type=OneOf(["some", "all", "none"]),
    help="Runs that take savepoints, stop with them and go on from them. [default: some; with --fault none]",
)
@setting_options
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failure.")
@click.option(
    "--files",
    metavar="tmpfs|DIR",
    help="Real files, in memory or below DIR, instead of simulated ones: slower, and what is not fsynced is not lost.",
)
@click.option(
    "--out", metavar="DIR", help="Write the report of a failure to DIR. [default: out/<job>/failures/<number>]"
)
@click.option("--results", metavar="FILE", help="Write one row per run to this Parquet file.")
@click.option("--shrink/--no-shrink", default=True, help="Shrink a failure, and compare it with runs that pass.")
@html_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON on standard output.")
def command(
    job_file: str,
    runs: int | None,
    duration: str | None,
    jobs: int | None,
    on: str | None,
    modes: tuple[str, ...],
    seed: str,
    promise: str | None,
    kinds: tuple[str, ...],
    savepoints: str | None,
    definitions: tuple[str, ...],
    config_file: str | None,
    params: tuple[str, ...],
    keep_going: bool,
    files: str | None,
    out: str | None,
    results: str | None,
    shrink: bool,
    html: str | None,
    as_json: bool,
) -> int:
    from engine.explore.search import CampaignOrder, explore

    console = error_console()
    where = parse_where(on)
    check_search(where, [("--jobs", jobs), ("--files", files)])
    named = parse_params(params)
    with job_output_dropped():
        subject, scenario = load_subject_and_scenario(job_file, named)
    assert subject.path is not None
    seconds = None if duration is None else parse_duration_ns(duration, "--time") / 1e9
    settings = settings_of_cases(definitions, config_file)
    if modes:
        settings.pop("mode", None)
    swarm = _swarm(scenario, modes, kinds, settings)
    swarm = replace(swarm, savepoints=savepoints or ("none" if kinds else "some"))
    promise = promise or _promise_beyond(scenario, swarm.modes)
    say(
        console,
        f"weir {engine.__version__} (Python {platform.python_version()}): exploring job {subject.label}, seed {seed}",
    )
    load: Callable[[], Subject] = partial(load_subject, subject.path, named)
    with _files(files) as directory, results_file(results) as keep:
        hire = None
        if where is not None:
            # The job travels: executors need not have its file.
            load, (jobs, hire) = subject.fresh, search_on_spark(where)
        order = CampaignOrder(
            seed=seed,
            runs=DEFAULT_RUNS if runs is None and seconds is None else runs,
            seconds=seconds,
            jobs=jobs or 1,
            swarm=swarm,
            promise=promise,
            keep_going=keep_going,
            files=directory,
        )
        with progress_of(console, how_far) as progress, job_output_dropped():
            report = explore(load, order, progress, results=keep, hire=hire)
    given = [part for one in definitions for part in ("--set", one)]
    given += [] if config_file is None else ["--config", config_file]
    undisturbed = replace(scenario.case(), scheduler=FIFO)
    page = None if html is None else partial(_write_page, html, subject, report, undisturbed)
    return _tell(subject, report, given, as_json=as_json, out=out, shrink=shrink, page=page)


def _write_page(
    html: str, subject: Subject, report: CampaignReport, undisturbed: Case, explained: FailureReport | None
) -> None:
    """The page of the first failure, made small; without one, of a run without faults."""
    name, reason, _ = report.verdict
    lines, case = [(f"verdict {name}", f"{name}: {reason}")], undisturbed
    violations: Sequence[Violation] = ()
    if explained is not None:
        case, violations = explained.case, explained.finished.violations
        lines.append(("soft", f"made small: {explained.command}"))
    elif report.failures:
        case, violations = report.failures[0].case, report.failures[0].violations
    write_case_page(html, subject, case, violations, lines, promise=report.order.promise)
    say(error_console(), f"page in {html}")


def _swarm(scenario: Scenario, modes: tuple[str, ...], kinds: tuple[str, ...], fixed: Mapping[str, Setting]) -> Swarm:
    """Options of the command line come first, then those of the job file."""
    from engine.explore.search import Swarm

    if not modes:
        modes = scenario.modes if scenario.names_modes else Swarm().modes
    asked = kinds or tuple(text for text in scenario.faults if ":" not in text)
    if asked == ("none",):
        return Swarm(modes, fixed, (), scenario.config)
    return Swarm(modes, fixed, asked or None, scenario.config)


def _promise_beyond(scenario: Scenario, modes: tuple[str, ...]) -> str | None:
    """The job file's promise for the only searched mode, if the mode itself promises nothing: without it, no output
    would be compared."""
    from engine.explore.cases import promise_of
    from engine.protocols.protocol_names import protocol_named

    if len(modes) == 1 and promise_of(protocol_named(modes[0])) == "none":
        return scenario.promises.get(modes[0])
    return None


def settings_of_cases(definitions: tuple[str, ...], config_file: str | None) -> dict[str, Setting]:
    """The settings that every case has. What runs of a search do not have may stand in a file, with a note.

    Raises :class:`ConfigurationError` on an unknown name, or a value that makes no sense."""
    from engine.explore.cases import NOT_OF_A_CASE, case_settings

    given = given_settings(definitions, config_file)
    values = dict(given.values)
    notes = [*given.notes]
    for name, origin in given.origins.items():
        if name in NOT_OF_A_CASE and not origin.startswith("-D"):
            notes.append(f"{origin} has no effect: runs of a search have no {name} of their own")
            del values[name]
    for note in notes:
        say(error_console(), f"note: {note}")
    return case_settings(values)


@contextmanager
def _files(asked: str | None) -> Iterator[str | None]:
    """The directory for real files, deleted afterwards; ``None`` = no real files."""
    if asked is None:
        yield None
        return
    parent = TMPFS if asked == "tmpfs" else os.path.abspath(asked)
    if not os.path.isdir(parent):
        raise ConfigurationError(f"--files {asked}: there is no directory {parent}\n  fix: name one that exists")
    with tempfile.TemporaryDirectory(prefix="weir-explore-", dir=parent) as directory:
        yield directory


# -- the report ---------------------------------------------------------------------------------------------------


def _tell(
    subject: Subject,
    report: CampaignReport,
    given: Sequence[str],
    *,
    as_json: bool,
    out: str | None,
    shrink: bool,
    page: Callable[[FailureReport | None], None] | None,
) -> int:
    console = error_console()
    if report.order.keep_going or not report.failures:
        # The coverage of a search that ended at its first failure proves nothing; it is in the JSON report.
        console.print(coverage_table(report.coverage))
        console.print(sometimes_table(report.coverage))
    tokens = [token_of(subject, report.order, failure) for failure in report.failures]
    place = failure_directory(subject.label, out) if tokens else None
    written: list[str] = []
    following = _next_command(subject, report, given)
    first: FailureReport | None = None
    for number, failure in enumerate(report.failures, start=1):
        assert place is not None
        explained = _explain(subject, report.order, failure, shrink, place) if number == 1 else None
        if explained is not None:
            written += explained.write(place)
            command = explained.command
        else:
            written.append(write_token(place, number, tokens[number - 1]))
            command = tokens[number - 1].command("replay", subject, written[-1])
        if number == 1:
            first, following = explained, command
        else:
            say(console, f"run {failure.seed}: {failure.violation}\n  {command}")
    if page is not None:
        page(first)
    say(console, summary_line(report))
    plain = report_plain(report, subject, [str(token) for token in tokens], written)
    if out is not None:
        write_text(out, "explore.json", report_json(plain))
    if as_json:
        click.echo(report_json(plain))
    name, reason, exit_code = report.verdict
    say(console, f"{name}: {reason}. Next: {following}")
    return exit_code


@job_output_dropped()
def _explain(
    subject: Subject, order: CampaignOrder, failure: Failure, shrink: bool, place: str
) -> FailureReport | None:
    """Print the report of a failure; ``None`` when the run cannot be made concrete."""
    from engine.explore.failures import failure_report
    from engine.explore.invariants import invariants_for
    from engine.explore.run import run_case
    from engine.explore.shrink import WAITING, concretised

    console = error_console()
    say(console, f"run {failure.seed} failed; {failure.replayed} of 3 replays did the same. Explaining it …")
    finished = run_case(subject, failure.case, invariants_for(order.promise), bounds=order.bounds)
    case = concretised(finished)
    report = failure_report(
        subject,
        case,
        failure.violation,
        promise=order.promise,
        budget=WAITING,
        shrinking=shrink,
        comparing=shrink,
        place=place,
    )
    if report is None:
        say(console, f"{failure.violation}\n  (it could not be made again one choice at a time)")
        return None
    say(console, report.text)
    return report


def token_of(subject: Subject, order: CampaignOrder, failure: Failure) -> Token:
    """The token of a failed run: its seed, and the possible draws."""
    from engine.explore.search import Drawn, Token

    run = Drawn(failure.seed, order.swarm) if failure.drawn else failure.case
    return Token.of(subject, run, promise=order.promise, digest=failure.digest)


def _next_command(subject: Subject, report: CampaignReport, given: Sequence[str]) -> str:
    """The command to type next when no run has failed."""
    assert subject.path is not None
    command = ["weir", "explore", subject.path]
    for name, value in subject.params.items():
        command += ["--param", f"{name}={value}"]
    runs = report.coverage.runs * 10
    return shlex.join([*command, *given, "--runs", str(runs), "--seed", f"{report.order.seed}-2"])
