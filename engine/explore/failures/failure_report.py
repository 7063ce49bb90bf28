"""The report on a failure: all that a first-time reader needs, with nothing to look up.

In this order: the verdict, the invariant and the size of the smallest case; the command that replays it; the
violation; the content of the case; the story, with the step marked at which the nearest passing run differs;
that run; and how far the case could be shrunk. :meth:`FailureReport.write` writes four files:

``failure.txt``         the report;
``failure.json``        the same for programs, with *every* choice of the run: ``weir shrink`` reads it back;
``test_regression.py``  a pytest function with the case spelled out;
``failure.html``        the story as a picture.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from engine.elements.errors import ConfigurationError
from engine.explore.cases import FIFO, Case, case_to_plain, plain_to_case
from engine.explore.failures.regression import regression_test
from engine.explore.failures.run_difference import DEFAULT_BUDGET, Difference, nearest_passing
from engine.explore.run import FinishedCase, Subject, Violation, trace_digest
from engine.explore.search import Token, parse_token
from engine.explore.shrink import (
    Budget,
    InvariantsFactory,
    Shrunk,
    Size,
    counted,
    same_invariant,
    shorter_bounds,
    shrink,
    size_of,
)
from engine.explore.story import Story, page, tell, time_text
from engine.runtime.kernel import START_NS
from state_backends.files import FileSystem, LocalFileSystem

FORMAT, FORMAT_VERSION = "weir-failure", 1
_MOST_STEPS = 1_000
_WIDTH = 80
_CHOICES_SHOWN = 12
"""Choices of a schedule shown to people; the regression test and the JSON file have all."""

REPORT_NAME, JSON_NAME, TEST_NAME, PICTURE_NAME = (
    "failure.txt", "failure.json", "test_regression.py", "failure.html",
)  # fmt: skip


@dataclass(frozen=True)
class FailureReport:
    """All that is known of a failure.

    ``case``        the smallest known case, ``finished`` its result;
    ``shrunk``      how it was shrunk, ``None`` when it was not;
    ``difference``  the comparison with the nearest passing run, ``None`` when none was found or searched for;
    ``title``       of the invariant; ``original``: the case as it was found;
    ``place``       the directory for the files, ``None`` = none: the token holds everything.
    """

    subject: Subject
    case: Case
    original: Case
    violation: Violation
    title: str
    promise: str | None
    finished: FinishedCase
    story: Story
    size: Size
    records: Mapping[str, int]
    digest: str
    shrunk: Shrunk | None = None
    difference: Difference | None = None
    place: str | None = None

    def __repr__(self) -> str:
        return f"<FailureReport {self.headline}>"

    @cached_property
    def token(self) -> Token:
        return Token.of(self.subject, self.case, promise=self.promise, digest=self.digest)

    @property
    def command(self) -> str:
        return self.token.command("replay", self.subject, self.place)

    @property
    def _command_anywhere(self) -> str:
        """The same for readers who have only one of the files."""
        return self.token.command("replay", self.subject)

    @property
    def headline(self) -> str:
        """One line: verdict, invariant, size."""
        steps = counted(len(self.story.steps), "step")
        return f"violated {self.violation.invariant}: {self.size}, {steps}"

    @property
    def text(self) -> str:
        """The whole report, without a final newline."""
        parts = [self.headline, f"replay: {self.command}"]
        parts += [f"\n{heading}\n{_indented(text)}" for heading, text in self.sections()]
        return "\n".join(parts)

    def sections(self) -> list[tuple[str, str]]:
        """Headings and the text below each."""
        violated = [*textwrap.wrap(self.title, _WIDTH - len("  ")), str(self.violation)]
        sections = [("What was violated", "\n".join(violated)), ("The case", "\n".join(self._case_lines()))]
        mark = "; → is where the nearest passing run goes another way" if self.story.distinguishing else ""
        sections.append((f"What happened{mark}", "\n".join(self.story.lines())))
        difference = self.difference
        if difference is not None and difference.change is not None:
            text = difference.describe("this run", "passing")
            sections.append((f"The nearest passing run: {difference.change.text}", text))
        shrunk = "not shrunk" if self.shrunk is None else self.shrunk.describe()
        if self.case.scheduler != FIFO:
            shrunk = "not shrunk: its choices could not be spelled out so that the run stays the same"
        sections.append(("How small it is", shrunk))
        return sections

    def _case_lines(self) -> list[str]:
        case = self.case
        config = ", ".join(f"{name}={value}" for name, value in sorted(case.config.items()))
        lines = [f"job          {self.subject.path or self.subject.label}", f"settings     {config or 'as always'}"]
        lines += [f"records      {text}" for text in _kept_text(case, self.records)]
        lines += [f"fault        {fault}" for fault in case.faults]
        lines += [f"savepoint    {one}" for one in case.savepoints]
        if case.checkpoints is not None:
            instants = ", ".join(time_text(START_NS + at_ns) for at_ns in case.checkpoints)
            lines.append(f"checkpoints  {f'at {instants}, and the last one' if instants else 'only the last one'}")
        if case.scheduler != FIFO:
            lines.append(f"schedule     {case.scheduler}, seed {case.seed!r}")
        elif case.schedule:
            choices = [f"{number} -> {value}" for number, value in sorted(case.schedule.items())]
            shown = ", ".join(choices[:_CHOICES_SHOWN])
            more = len(choices) - _CHOICES_SHOWN
            shown += f" and {more} more" if more > 0 else ""
            lines.append(f"schedule     first come, first served, but for choices {shown}")
        else:
            lines.append("schedule     first come, first served")
        return lines

    def regression_test(self) -> str:
        return regression_test(self.subject, self.case, self.violation, promise=self.promise)

    def to_plain(self) -> dict[str, Any]:
        """The report as JSON-able data, with every choice of the run."""
        difference = self.difference
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "verdict": "violated",
            "job": self.token.job,
            "params": dict(self.subject.params),
            "job_fingerprint": self.token.fingerprint,
            "promise": self.promise,
            "token": str(self.token),
            "digest": self.digest,
            "violation": {
                "invariant": self.violation.invariant,
                "title": self.title,
                "text": self.violation.text,
                "at_ns": self.violation.at_ns,
                "details": {name: _plain(value) for name, value in self.violation.details.items()},
            },
            "size": asdict(self.size),
            "case": case_to_plain(self.case),
            "original": case_to_plain(self.original),
            "shrinking": None if self.shrunk is None else _shrinking(self.shrunk),
            "faults_struck": [str(fault) for fault in self.finished.faults],
            "committed": {name: list(rows) for name, rows in self.finished.committed.items()},
            "choices": [list(choice) for choice in self.finished.choices],
            "nearest_passing": None if difference is None else _passing(difference),
            "story": self.story.lines(limit=_MOST_STEPS),
        }

    def picture(self) -> str:
        sections = [one for one in self.sections() if not one[0].startswith("What happened")]
        title = f"{self.violation.invariant} violated by {self.subject.label}"
        return page(title, self.headline, [*sections, ("Replay", self._command_anywhere)], self.story)

    def write(self, directory: str, file_system: FileSystem | None = None) -> list[str]:
        """Write the four files into ``directory``, which is made; gives their paths."""
        files = LocalFileSystem() if file_system is None else file_system
        files.make_dirs(directory)
        contents = {
            REPORT_NAME: f"{self.text}\n\nReplay without the other files\n  {self._command_anywhere}\n",
            JSON_NAME: json.dumps(self.to_plain(), indent=1, ensure_ascii=False) + "\n",
            TEST_NAME: self.regression_test(),
            PICTURE_NAME: self.picture(),
        }
        paths = []
        for name, content in contents.items():
            path = os.path.join(directory, name)
            with files.open_write(path) as file:
                file.write(content.encode())
            paths.append(path)
        return paths


def failure_report(
    subject: Subject,
    case: Case,
    violation: Violation | None = None,
    *,
    promise: str | None = None,
    invariants_for: InvariantsFactory | None = None,
    budget: Budget | None = None,
    shrinking: bool = True,
    comparing: bool = True,
    place: str | None = None,
) -> FailureReport | None:
    """Shrink a failing case, tell its story, and find the choice that makes the difference.

    ``case``            preferably a concretised one; another one is reported as it is, not shrunk;
    ``violation``       the failure to report, ``None`` = the first one of the case;
    ``promise``         the promise that the output is judged by, ``None`` = that of the mode;
    ``invariants_for``  the judges, when they are not the standard ones;
    ``budget``          for shrinking; the search for the nearest passing run takes as long again, in fewer runs;
    ``place``           the directory that the report will be written to.

    Returns ``None`` when the case does not fail, or fails otherwise than by ``violation``.
    """
    judges = standard_invariants(promise) if invariants_for is None else invariants_for
    shrunk = None
    smallest = case
    if shrinking and case.scheduler == FIFO and not case.mix.per_million:
        shrunk = shrink(subject, case, judges, violation, budget=budget)
        if shrunk is None:
            return None
        smallest, violation = shrunk.case, shrunk.violation
    watching = judges(smallest)
    bounds = shorter_bounds(subject, smallest, violation)
    story, finished, witness = tell(subject, smallest, watching, bounds)
    found = [one for one in finished.violations if violation is None or same_invariant(violation, one)]
    if not found:
        return None
    records = witness.records if shrunk is None else shrunk.records
    difference = None
    if comparing:
        trying = replace(DEFAULT_BUDGET, seconds=(budget or DEFAULT_BUDGET).seconds)
        difference = nearest_passing(subject, smallest, judges, records=records, budget=trying, bounds=bounds)
    return FailureReport(
        subject=subject,
        case=smallest,
        original=case,
        violation=found[0],
        title=next((one.title for one in watching if one.name == found[0].invariant), ""),
        promise=promise,
        finished=finished,
        story=story if difference is None else story.marked(difference.common),
        size=size_of(smallest, records),
        records=records,
        digest=trace_digest(witness.trace),
        shrunk=shrunk,
        difference=difference,
        place=place,
    )


def standard_invariants(promise: str | None) -> InvariantsFactory:
    # Imported only here: callers with invariants of their own do not need these.
    from engine.explore.invariants import invariants_for

    return lambda _case: invariants_for(promise)


def read_failure(text: str, name: str = JSON_NAME) -> tuple[Token, str]:
    """Read the run and the invariant that it violates back from ``failure.json``. ``name``: the name of the file in
    errors.

    Raises :class:`ConfigurationError` when it is no such file, or one of another version.
    """
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{name} is no JSON: {error}") from error
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ConfigurationError(f"{name} is no record of a failure; name a {JSON_NAME} that weir explore has written")
    if plain.get("version") != FORMAT_VERSION:
        raise ConfigurationError(
            f"{name} has version {plain.get('version')!r} of its format, and this is a Weir that reads {FORMAT_VERSION}"
        )
    try:
        token = parse_token(plain["token"])
        names = ("job", "params", "job_fingerprint", "promise", "case")
        said = dict(zip(names, (token.job, token.params, token.fingerprint, token.promise, token.run), strict=True))
        read = {**{one: plain[one] for one in names}, "job": plain["job"] or "", "case": plain_to_case(plain["case"])}
        invariant = str(plain["violation"]["invariant"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{name} is not whole: {error!r} is missing or of another kind") from error
    for one in names:
        # The token has a checksum, the rest of the file has none.
        if read[one] != said[one]:
            raise ConfigurationError(
                f"{name} is damaged or was edited: its {one} is not that of its token\n"
                "  fix: name the token instead; to change a run, change the regression test beside the file"
            )
    return token, invariant


def _kept_text(case: Case, records: Mapping[str, int]) -> list[str]:
    lines = []
    for key, count in records.items():
        dropped = [one for first, end in case.dropped.get(key, ()) for one in range(first, end)]
        kept = [number for number in range(count) if number not in set(dropped)]
        shown = ", ".join(f"#{number}" for number in kept[:20]) + (", …" if len(kept) > 20 else "")
        lines.append(f"{len(kept)} of {count} of {key}{f': {shown}' if kept and dropped else ''}")
    return lines


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _shrinking(shrunk: Shrunk) -> dict[str, Any]:
    return {
        "before": asdict(shrunk.before),
        "after": asdict(shrunk.after),
        "runs": shrunk.runs,
        "verified": shrunk.verified,
        "is_minimal": shrunk.is_minimal,
        "unverified": list(shrunk.unverified),
    }


def _passing(difference: Difference) -> dict[str, Any]:
    change = difference.change
    return {
        "change": None if change is None else change.text,
        "case": None if change is None else case_to_plain(change.case),
        "common_events": difference.common,
        "committed": {name: list(rows) for name, rows in difference.that.committed.items()},
        "text": difference.describe("this run", "passing"),
    }


def _plain(value: Any) -> Any:
    """A detail as a JSON value; values that JSON does not have become text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_plain(one) for one in value]
    return repr(value)
