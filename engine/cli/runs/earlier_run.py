"""A run that was made before, read from its files: what it was given, so that it can be made again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.cli.runs.directory import REPORT_NAME
from engine.cli.settings import RunOptions
from engine.elements.errors import ConfigurationError, StorageError
from engine.faults.fault_plan import FaultPlan
from engine.observe.trace_events import TRACE_VERSION
from engine.report.report import REPORT_SCHEMA, REPORT_SCHEMA_VERSION
from state_backends.base import unseal_json

_OTHER = "name the directory of another run"


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """``job_file``: as it was named then. ``trace_digest``: of a run that is the same."""

    options: RunOptions
    faults: FaultPlan
    job_file: str
    params: Mapping[str, str]
    trace_digest: str


def earlier_run(name: str) -> EarlierRun | None:
    """The run of a directory, of its ``run.json`` or of its trace; ``None`` when ``name`` is none of these.

    Raises :class:`ConfigurationError` when the files are not whole, of another version, foreign, or of a run that
    cannot be made again.
    """
    if name.endswith(".jsonl"):
        directory = os.path.dirname(os.path.abspath(name))
        lines = _whole_trace(name)
        path = os.path.join(directory, REPORT_NAME)
        if not os.path.isfile(path):
            raise _refused(name, f"there is no {REPORT_NAME} beside it", "name the directory of its run")
        report = _report(path)
        _check_trace_of(report, name, lines)
        return _of_report(report, path)
    path = os.path.join(name, REPORT_NAME) if os.path.isdir(name) else name
    if os.path.basename(path) != REPORT_NAME or not os.path.isfile(path):
        return None
    return _of_report(_report(path), path)


def _report(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, f"cannot be read ({error})", _OTHER) from error
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"was cut off, or is damaged ({error})", _OTHER) from error
    if not isinstance(plain, dict) or plain.get("schema") != REPORT_SCHEMA:
        raise _refused(path, "is no report of a run of Weir", _OTHER)
    # Before the checksum: a file of another version may be sealed in another way.
    if plain.get("schema_version") != REPORT_SCHEMA_VERSION:
        version = f"version {plain.get('schema_version')!r}, and this is a Weir that reads {REPORT_SCHEMA_VERSION}"
        raise _refused(path, f"has {version}", "make the run again with this Weir")
    try:
        return unseal_json(text)
    except ValueError as error:
        raise _refused(path, f"is damaged ({error})", _OTHER) from error


def _of_report(report: Mapping[str, Any], path: str) -> EarlierRun:
    try:
        run, job = report["run"], report["job"]
        digest, process = run.get("trace_digest"), run.get("incarnation", 1)
        if digest is not None and process == 1:
            texts = [str(one) for one in run["faults"]]
            kills = [text for text in texts if ":" not in text.partition("@")[0]]
            faults = FaultPlan.parse(kills, [text for text in texts if text not in kills])
            options = RunOptions.from_dict(run["options"], path)
            return EarlierRun(options, faults, job["file"], job["params"], digest)
    except (KeyError, TypeError, ValueError, AttributeError, StorageError) as error:
        why = str(error).partition("\n")[0]
        raise _refused(path, f"is of another version ({why})", "make the run again with this Weir") from error
    if digest is None:
        raise _refused(path, "is of a run that has not ended", "name the directory of a run that has ended")
    raise _refused(
        path, f"is of a run that went on from a checkpoint (process {process} of its storage)",
        "name a run that began at the beginning; weir resume DIR --html FILE shows the next one that goes on",
    )  # fmt: skip


def _whole_trace(path: str) -> int:
    """The number of lines of a trace, whose first and last line are read."""
    try:
        with open(path, "rb") as file:
            first = last = file.readline()
            lines = 1
            for lines, last in enumerate(file, 2):  # noqa: B007
                pass
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})\n  fix: name a trace, or a run") from error
    try:
        version = json.loads(first)["trace_version"]
    except (ValueError, LookupError, TypeError) as error:
        told = f"is no trace of Weir ({_first(first)})"
        raise _refused(path, told, "name the directory of a run, or its trace") from error
    if version != TRACE_VERSION:
        told = f"is a trace of version {version}, and this is a Weir that reads {TRACE_VERSION}"
        raise _refused(path, told, "make the run again with this Weir")
    if not last.endswith(b"}\n"):
        raise _refused(path, f"was cut off in line {lines:,}", "name the directory of its run, or make the run again")
    return lines


def _check_trace_of(report: Mapping[str, Any], path: str, lines: int) -> None:
    run = report["run"]
    named, events = run.get("trace_file"), run.get("trace_events", 0)
    if named is None or os.path.basename(named) != os.path.basename(path):
        raise _refused(path, f"the {REPORT_NAME} beside it is not of its run", "name the directory of its run")
    if lines != events + 1:
        raise _refused(
            path, f"has {lines - 1:,} events, and its run had {events:,}: it was cut off, or is of another run",
            "name the directory of its run, or make the run again",
        )  # fmt: skip


def _first(line: bytes) -> str:
    text = line[:40].decode(errors="replace").strip()
    return f"it begins with {text!r}" if text else "it is empty"


def _refused(path: str, problem: str, fix: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {problem}\n  fix: {fix}")
