"""``weir view``: the page of a run that was made before, by making it again."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from typing import Any

import click

from engine.cli.cases import resolve, write_case_page
from engine.cli.runs import RunOrder, drive
from engine.cli.settings import RunOptions, load_job
from engine.cli.text import error_console, job_output_dropped, say
from engine.elements.errors import EXIT_VALID, ConfigurationError
from engine.faults.fault_plan import FaultPlan
from engine.observe.trace_events import TRACE_VERSION
from state_backends.base import unseal_json

_HELP = """Write a page about a run that was made before: it opens offline, and steps through the run.

RUN is the directory of a run (with its run.json), its trace, the directory of a failure report, or a replay token. A
run is deterministic, so it is made again, in a directory of its own, and the page is of that.

\b
Examples:
  weir view out/wordcount/latest
  weir view out/wordcount/failures/1 --html failure.html
  weir view weir2.xxxxxxxx --job here/wordcount.py
"""
_REPORT = "run.json"


@click.command("view", help=_HELP)
@click.argument("run", metavar="RUN")
@click.option("--html", metavar="FILE", default="view.html", show_default=True, help="The file for the page.")
@click.option("--job", "job_file", metavar="PATH", help="The job file, when it has changed or lies elsewhere.")
def command(run: str, html: str, job_file: str | None) -> int:
    directory = _directory_of_trace(run) if run.endswith(".jsonl") else run
    if os.path.isfile(os.path.join(directory, _REPORT)):
        return _again(directory, html, job_file)
    from engine.explore.invariants import invariants_for
    from engine.explore.run import run_case

    with job_output_dropped():
        named = resolve(run, job_file, ["view", run])
        case = named.token.to_case(named.subject)
        finished = run_case(named.subject, case, invariants_for(named.token.promise))
    write_case_page(html, named.subject, case, finished.violations, [("soft", f"weir replay {run}")])
    say(error_console(), f"page in {html}")
    return EXIT_VALID


def _again(directory: str, html: str, job_file: str | None) -> int:
    report = _report(os.path.join(directory, _REPORT))
    try:
        given, file, params = report["run"]["options"], report["job"]["file"], report["job"]["params"]
        faults, recorded = report["run"]["faults"], report["run"]["trace_digest"]
    except KeyError as error:
        raise ConfigurationError(
            f"{directory}/{_REPORT}: the run has not ended, or is of another version ({error} is missing)\n"
            "  fix: name the directory of a run that has ended"
        ) from error
    options = RunOptions.of(**{name: value for name, value in given.items() if name != "settings"})
    options = RunOptions({**options.values, **given.get("settings", {})})
    loaded = load_job(job_file or file, params, options.number("parallelism"), options.number("max_parallelism"))
    kills = [text for text in faults if ":" not in text.partition("@")[0]]
    plan = FaultPlan.parse(kills, [text for text in faults if text not in kills])
    with tempfile.TemporaryDirectory(prefix="weir-view-") as place:
        code = drive(RunOrder(loaded, options, plan, place, False, None, html=html))
        made = _report(os.path.join(place, _REPORT))["run"].get("trace_digest")
    if made != recorded:
        say(error_console(), "note: the run is another one than before: the job file, Weir or the input has changed")
    say(error_console(), f"page in {html}. Next: open {shlex.quote(html)} in a browser")
    return code


def _report(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            report: dict[str, Any] = unseal_json(file.read())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: is damaged ({error})\n  fix: name the directory of another run") from error
    return report


def _directory_of_trace(path: str) -> str:
    """The directory of a run, by its trace. Raises :class:`ConfigurationError` when the file is no whole trace of this
    version."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        version = json.loads(lines[0])["trace_version"]
        json.loads(lines[-1])
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})\n  fix: name a trace, or a run") from error
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(
            f"{path}: is no trace of Weir, or was cut off ({error})\n  fix: name the directory of the run"
        ) from error
    if version != TRACE_VERSION:
        raise ConfigurationError(
            f"{path}: is a trace of version {version}, and this is a Weir that reads {TRACE_VERSION}\n"
            "  fix: make the run again with this Weir"
        )
    return os.path.dirname(os.path.abspath(path))
