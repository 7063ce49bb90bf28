"""``weir replay``: repeat a run from its token."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from engine.cli.cases import resolve, write_case_page
from engine.cli.runs import report_json
from engine.cli.settings import html_option
from engine.cli.shell import AtLeast
from engine.cli.text import error_console, job_output_dropped, say, stdout_kept_clean
from engine.elements.errors import EXIT_VALID, EXIT_VIOLATED, ConfigurationError
from engine.explore.run import FinishedCase, Subject
from engine.explore.search import Token
from engine.faults.fault import parse_fault
from engine.observe.trace_events import TraceEvent
from engine.report.units import plural

_HELP = """Make the run that TOKEN stands for again, event by event, and judge it.

TOKEN is the directory of a failure report, as weir explore and weir check write it, its failure.json, a file with a
token, or the token itself. One that is torn, or of another job, is refused. The job
file that a token names is loaded if it lies below the working directory and is as it was; any other needs --job.

\b
Examples:
  weir replay failure/
  weir replay failure/ --times 100
  weir replay weir2.xxxxxxxx --trace trace.jsonl
  weir replay failure/ --html failure.html
  weir replay failure/ --fault 'crash:count[0]@after:ack.send#1'
  weir replay weir2.xxxxxxxx --job here/wordcount.py
"""


@click.command("replay", help=_HELP)
@click.argument("text", metavar="TOKEN")
@click.option("--times", type=AtLeast(1), default=1, show_default=True, help="How often.")
@click.option("--job", "job_file", metavar="PATH", help="The job file, when it has changed or lies elsewhere.")
@click.option("--trace", metavar="FILE", help="Write every event to FILE, as JSON Lines.")
@click.option("--fault", "faults", multiple=True, metavar="FAULT", help="Have this go wrong, too. Repeatable.")
@click.option("--case", "print_case", is_flag=True, help="Print the case, everything that decides the run, as JSON.")
@html_option
@click.option("--story/--no-story", default=True, help="Whether to tell what happens, step by step.")
def command(
    text: str,
    times: int,
    job_file: str | None,
    trace: str | None,
    faults: tuple[str, ...],
    print_case: bool,
    html: str | None,
    story: bool,
) -> int:
    from engine.explore.cases import case_to_plain
    from engine.explore.run import trace_digest

    console = error_console()
    with stdout_kept_clean(print_case):
        named = resolve(text, job_file, ["replay", text])
    token, subject, place = named.token, named.subject, text
    case = token.to_case(subject)
    if faults:
        # Another run than the recorded one. Its token has no digest: there is nothing that it must repeat.
        case = replace(case, faults=(*case.faults, *map(parse_fault, faults)))
        token = Token.of(subject, case, promise=token.promise)
        place = str(token)
    if print_case:
        click.echo(report_json(case_to_plain(case)))
    digests: dict[str, int] = {}
    for number in range(times):
        with stdout_kept_clean(print_case):
            finished, events = _replay(subject, token)
        digest = trace_digest(events)
        digests[digest] = digests.get(digest, 0) + 1
        if number == 0:
            first, first_events = finished, events
    if trace is not None:
        _write_trace(first_events, trace)
    if html is not None:
        lines = [("soft", f"weir replay {place}")]
        write_case_page(html, subject, first.view.case, first.violations, lines, promise=token.promise)
        say(console, f"page in {html}")
    if story:
        _tell_story(subject, token, first)
    struck = ", ".join(map(str, first.faults)) or "none"
    processes = plural(first.incarnations, "process", "processes")
    say(console, f"job {subject.label}, {first.outcome}, {processes}, faults: {struck}{_reference(token, first)}")
    for fault in first.unused:
        say(console, f"note: fault {fault} never struck: the run was over before")
    for violation in first.violations:
        say(console, f"  {violation}")
    return _verdict(token, subject, first, digests, place)


def _replay(subject: Subject, token: Token) -> tuple[FinishedCase, list[TraceEvent]]:
    from engine.explore.invariants import invariants_for
    from engine.explore.run import run_case

    events: list[TraceEvent] = []
    case = token.to_case(subject)
    return run_case(subject, case, invariants_for(token.promise), instruments=[events.append]), events


def _reference(token: Token, finished: FinishedCase) -> str:
    """The judge of the output; empty where it was not judged."""
    if token.promise == "none" or not finished.is_over:
        return ""
    view = finished.view
    return f", reference: {view.subject.reference(view.case.dropped).judged_by}"


@job_output_dropped()
def _tell_story(subject: Subject, token: Token, finished: FinishedCase) -> None:
    from engine.explore.invariants import invariants_for
    from engine.explore.story import tell

    story, _, _ = tell(subject, finished.view.case, invariants_for(token.promise))
    for line in story.lines():
        say(error_console(), line)


def _write_trace(events: list[TraceEvent], path: str) -> None:
    from engine.observe.trace import TraceWriter
    from state_backends.files import LocalFileSystem

    try:
        writer = TraceWriter(LocalFileSystem(), os.path.abspath(path))
    except OSError as error:
        raise ConfigurationError(
            f"--trace {path}: cannot be written ({error.strerror})\n  fix: name a file in a directory that exists"
        ) from error
    for event in events:
        writer(event)
    writer.close()


def _verdict(token: Token, subject: Subject, finished: FinishedCase, digests: dict[str, int], place: str) -> int:
    """The last line, and the exit code. ``place``: the name by which the user named the run."""
    console = error_console()
    same_code = token.is_of_this_code(subject)
    if not same_code:
        say(console, "note: Weir or the job file has changed since the token was made")
    recorded = sorted(digests)
    others = [digest for digest in recorded if token.digest is not None and not digest.startswith(token.digest)]
    times = f"{plural(sum(digests.values()), 'time')}, trace digest {', '.join(digest[:16] for digest in recorded)}"
    explore = f"weir explore {subject.path or ''}"
    following = token.command("shrink", subject, place) if finished.violations else explore
    if len(digests) > 1 or (others and same_code):
        expected = f"; it was {token.digest} when the token was made" if others else ""
        say(console, f"violated: V16: the run is not the same each time: {times}{expected}. Next: {following}")
        return EXIT_VIOLATED
    if others:
        say(console, f"note: the run is another one than when the token was made ({token.digest})")
    if finished.violations:
        say(console, f"violated: {finished.violations[0]} ({times}). Next: {following}")
        return EXIT_VIOLATED
    say(console, f"valid: the run violates nothing ({times}). Next: {following}")
    return EXIT_VALID
