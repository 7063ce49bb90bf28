"""``weir compare``: one job under several protocols, with one input, one schedule and one crash."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click
from rich.table import Table

import engine
from engine.cli.cases import load_subject, load_subject_and_scenario
from engine.cli.runs import report_json
from engine.cli.settings import html_option, parse_params, setting_options
from engine.cli.shell import AtLeast
from engine.cli.text import error_console, job_output_dropped, say
from engine.cli.verbs.explore import settings_of_cases
from engine.elements.errors import EXIT_VALID, EXIT_VIOLATED, ConfigurationError
from engine.explore.cases import FIFO, Case, Scenario, Setting
from engine.explore.run import Subject
from engine.faults.fault import parse_fault
from engine.protocols.protocol_names import protocol_named

_HELP = """Run the job that JOB defines under two or more protocols, and show what one crash makes of each.

All runs have one input and one crash. Without --kill and --fault, the crash is searched: one that makes a difference,
as small as possible, with the schedule that it needs.

\b
Examples:
  weir compare counting.py --protocols aligned,at-least-once --html two.html
  weir compare counting.py --protocols aligned,unaligned,at-least-once
  weir compare counting.py --protocols aligned,at-least-once --kill 'count[0]@3us' --same-schedule
"""

DEFAULT_SEARCH_RUNS = 2_000


@click.command("compare", help=_HELP)
@click.argument("job_file", metavar="JOB")
@click.option(
    "--protocols",
    metavar="MODE,MODE",
    default="aligned,at-least-once",
    show_default=True,
    help="The modes to compare; a page shows the first two.",
)
@click.option("--kill", "kills", multiple=True, metavar="NAME@TIME", help="Kill a subtask then. Repeatable.")
@click.option("--fault", "faults", multiple=True, metavar="FAULT", help="Have something go wrong. Repeatable.")
@click.option("--same-schedule", is_flag=True, help="Ready events in their order in all runs, not drawn from the seed.")
@click.option("--seed", default="0", show_default=True, help="Of the search, and of schedules.")
@click.option("--runs", type=AtLeast(1), default=DEFAULT_SEARCH_RUNS, show_default=True, help="Of the search, at most.")
@setting_options
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@html_option
@click.option("--json", "as_json", is_flag=True, help="Print the measures as JSON on standard output.")
def command(
    job_file: str,
    protocols: str,
    kills: tuple[str, ...],
    faults: tuple[str, ...],
    same_schedule: bool,
    seed: str,
    runs: int,
    definitions: tuple[str, ...],
    config_file: str | None,
    params: tuple[str, ...],
    html: str | None,
    as_json: bool,
) -> int:
    from engine.view import compare_modes, comparison_page, comparison_table, verdict_of, write_page

    modes = _modes(protocols)
    console = error_console()
    with job_output_dropped():
        subject, scenario = load_subject_and_scenario(job_file, parse_params(params))
    settings = settings_of_cases(definitions, config_file)
    settings.pop("mode", None)
    say(
        console,
        f"weir {engine.__version__} (Python {platform.python_version()}): comparing {', '.join(modes)} over job"
        f" {subject.label}, seed {seed}",
    )
    struck = tuple(parse_fault(text) for text in (*(f"crash:{kill}" for kill in kills), *faults))
    found = True
    case = Case(seed, {**scenario.case().config, **settings}, struck)
    if struck:
        case = replace(case, scheduler=FIFO) if same_schedule else case
    else:
        with job_output_dropped():
            searched = _search(subject, scenario, modes, settings, seed, runs)
        found = searched is not None
        case = replace(case, scheduler=FIFO) if searched is None else searched
    with job_output_dropped():
        compared = compare_modes(subject, case, modes)
    if not found:
        say(console, f"note: no crash in {runs} runs makes a difference; these runs have none. Name one by --kill")
    for fault in case.faults:
        say(console, f"fault: {fault}")
    console.print(_table(comparison_table(compared)))
    for run in compared:
        for text in run.sentences:
            say(console, f"mode {run.mode}: {text}")
    verdict = verdict_of(compared)
    if html is not None:
        crash = ", ".join(map(str, case.faults)) or "no fault"
        lines = [("soft", f"One job, one input, one schedule, one crash: {crash}"), ("verdict", verdict)]
        write_page(html, comparison_page(f"{subject.label}: {modes[0]} and {modes[1]}", compared[:2], lines))
    if as_json:
        plain = [{"mode": run.mode, "measures": dict(run.measures), "sentences": run.sentences} for run in compared]
        click.echo(report_json({"job": subject.label, "faults": list(map(str, case.faults)), "runs": plain}))
    breaks = [run.mode for run in compared if run.breaks]
    following = f"weir compare {shlex.quote(job_file)} --html two.html"
    if html is not None:
        following = f"open {shlex.quote(html)} in a browser"
    name = "violated" if breaks else "valid"
    say(console, f"{name}: {verdict}. Next: {following}")
    return EXIT_VIOLATED if breaks else EXIT_VALID


def _table(measures: dict[str, Any]) -> Table:
    table = Table(title="Measured in each run", title_justify="left")
    for at, head in enumerate(measures["heads"]):
        table.add_column(head, justify="right" if at else "left")
    for row in measures["rows"]:
        table.add_row(*row)
    return table


def _modes(text: str) -> list[str]:
    modes = [protocol_named(one.strip()).name for one in text.split(",") if one.strip()]
    for mode in modes:
        if not protocol_named(mode).takes_checkpoints:
            raise ConfigurationError(
                f"--protocols: mode {mode} takes no checkpoints, so there is no cut to compare; leave it out"
            )
    if len(modes) < 2 or len(set(modes)) < len(modes):
        raise ConfigurationError(
            f"--protocols {text!r} must name two different modes at least: --protocols aligned,at-least-once"
        )
    return modes


def _search(
    subject: Subject, scenario: Scenario, modes: Sequence[str], settings: dict[str, Setting], seed: str, runs: int
) -> Case | None:
    """A small case that breaks exactly-once in the mode that promises least."""
    from engine.explore.failures import standard_invariants
    from engine.explore.run import run_case
    from engine.explore.search import CampaignOrder, Swarm, explore
    from engine.explore.shrink import Budget, concretised, shrink

    weakest = next((one for one in modes if not protocol_named(one).consistent_cut), modes[-1])
    assert subject.path is not None
    fixed = {**scenario.config, **settings}
    if subject.is_scalable:
        # The job as it is: a search would draw more subtasks than a picture needs.
        fixed.setdefault("parallelism", max(vertex.parallelism for vertex in subject.plan().vertices))
    swarm = Swarm((weakest,), fixed, ("crash",), {}, "none")
    order = CampaignOrder(seed=seed, runs=runs, swarm=swarm, promise="exactly-once")
    report = explore(partial(load_subject, subject.path, subject.params), order)
    if not report.failures:
        return None
    failure, judges = report.failures[0], standard_invariants("exactly-once")
    case = concretised(run_case(subject, failure.case, judges(failure.case), bounds=order.bounds))
    # By runs, not by the clock: the same command finds the same crash.
    shrunk = shrink(subject, case, judges, failure.violation, budget=Budget(150))
    return case if shrunk is None else shrunk.case
