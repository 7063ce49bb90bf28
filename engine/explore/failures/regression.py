"""Regression tests: a failing case as a pytest function to paste, with everything that decides the run spelled out.

The test names no seed, because the draws of a seed may change with the next version. It names the faults, records,
instants and choices. It uses the public interface only, and passes as soon as the case breaks no
invariant any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.explore.cases import FIFO, RANDOM, Case
from engine.explore.run import Subject, Violation

_WIDTH = 112


def regression_test(subject: Subject, case: Case, violation: Violation, *, promise: str | None = None) -> str:
    """The source of a test module with one test. ``promise``: the promise that the output is judged by, ``None`` = that
    of the mode. A job that comes from no file is requested as a fixture named ``subject``."""
    path = _shortest(subject.path)
    from_file = path is not None
    parsers = {"parse_fault": case.faults, "parse_savepoint": case.savepoints}
    names = ["Case", *([] if from_file else ["Subject"]), *(name for name, used in parsers.items() if used), "run_case"]
    name = f"test_{_name(subject.label)}_keeps_{_name(violation.invariant)}"
    lines = [
        f'"""A case that has broken {violation.invariant} once, with every choice spelled out."""',
        "",
        "from __future__ import annotations",
        "",
        *(["from engine.cli.cases import load_subject"] if from_file else []),
        f"from engine.explore import {', '.join(names)}",
        "from engine.explore.invariants import invariants_for",
        "",
        "",
        f"def {name}({'' if from_file else 'subject: Subject'}) -> None:",
        f'    """{_claim(violation)}"""',
        *([f"    subject = load_subject({path!r}, {dict(subject.params)!r})"] if from_file else []),
        *_indented(case_source(case)),
        "",
        f"    finished = run_case(subject, case, invariants_for({'' if promise is None else repr(promise)}))",
        "",
        '    assert not finished.violations, "\\n".join(map(str, finished.violations))',
    ]
    return "\n".join(lines) + "\n"


def case_source(case: Case) -> list[str]:
    """``case = Case(...)`` as lines of Python; default values are left out."""
    lines = ["case = Case("]
    if case.seed != "0":
        lines.append(f"    seed={case.seed!r},")
    if case.config:
        lines += _keyword("config", dict(sorted(case.config.items())))
    if case.faults:
        lines += ["    faults=(", *(f"        parse_fault({str(fault)!r})," for fault in case.faults), "    ),"]
    if case.dropped:
        lines += _keyword("dropped", dict(case.dropped))
    if case.checkpoints is not None:
        lines += _keyword("checkpoints", tuple(case.checkpoints))
    if case.savepoints:
        lines += ["    savepoints=(", *(f"        parse_savepoint({str(one)!r})," for one in case.savepoints), "    ),"]
    if case.scheduler != RANDOM:
        lines.append(f"    scheduler={case.scheduler!r},")
    if case.scheduler == FIFO and case.schedule:
        lines += _keyword("schedule", dict(sorted(case.schedule.items())))
    return [*lines, ")"]


def _shortest(path: str | None) -> str | None:
    """Relative to the current directory when below it: a kept test is run from the same place on another machine."""
    if path is None:
        return None
    seen = os.path.relpath(path)
    return path if seen.startswith(os.pardir) else seen


def _keyword(name: str, value: Mapping[Any, Any] | Sequence[Any]) -> list[str]:
    """One line, or one per entry where that is too long."""
    line = f"    {name}={value!r},"
    if len(line) + 4 <= _WIDTH or not value:
        return [line]
    if isinstance(value, Mapping):
        return [f"    {name}={{", *(f"        {key!r}: {one!r}," for key, one in value.items()), "    },"]
    return [f"    {name}=(", *(f"        {one!r}," for one in value), "    ),"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower() or "job"


def _claim(violation: Violation) -> str:
    """The violation in one line, as text that a docstring can hold."""
    text = " ".join(f"This case breaks no invariant; it broke {violation}".split())
    text = text.replace("\\", "/").replace('"', "'")
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
