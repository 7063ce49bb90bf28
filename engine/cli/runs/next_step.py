"""The command to type after a run: the end of its last line.

A run is deterministic: the same command gives the same run. So after a failure it is never proposed unchanged. Either
the command changes, or the cause has to be removed first, and the line says so.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from engine.cli.settings import RunOptions
from engine.elements.durations import duration_text
from engine.elements.errors import KeyTypeMismatchError, MalformedRecordError, UserFunctionError
from engine.faults.fault_plan import KillTask
from engine.report.verdict import Verdict
from engine.runtime.execution import ExecutionResult
from engine.runtime.job import NO_RESTART_HELPS

if TYPE_CHECKING:
    from engine.cli.runs.driver import RunOrder

_OF_THE_JOB = (UserFunctionError, MalformedRecordError, KeyTypeMismatchError, *NO_RESTART_HELPS)
"""Errors that occur again with or without faults."""

FIX_FIRST = "fix the cause, then"


def next_step(order: RunOrder, verdict: Verdict, result: ExecutionResult, stopped_with: str | None) -> str:
    """The command to type next. ``stopped_with``: the savepoint with which the job has stopped."""
    if stopped_with is not None:
        return shlex.join([*_command(order, order.options), "--from", stopped_with])
    if verdict.name == "failed":
        return _after_failure(order, result)
    if verdict.name == "unknown":
        return _after_unknown(order, result)
    if order.storage_dir is not None and order.options.to_config().protocol.takes_checkpoints:
        return shlex.join(["weir", "inspect", order.storage_dir])
    if order.html is not None:
        return f"open {shlex.quote(order.html)} in a browser"
    command = again(order, order.options)
    if verdict.name == "violated":
        with_trace = shlex.join([*command, *order.faults.options(), "--trace"])
        return with_trace if order.trace is None else "read the trace"
    if not order.faults.is_empty:
        return shlex.join([*command, *order.faults.options(), "--storage", _unused("state")])
    # After a run without faults, propose the same run with a kill in the middle, where it strikes.
    kill = KillTask(_somebody(order), (result.ended_ns - result.started_ns) // 2)
    return shlex.join([*again(order, _surviving(order.options)), "--kill", str(kill)])


def _after_failure(order: RunOrder, result: ExecutionResult) -> str:
    """Faults are not stored. Without them a resumed or repeated run finishes, unless the job itself is the cause."""
    if order.storage_dir is None:
        command = shlex.join(again(order, order.options))
    else:
        command = shlex.join(["weir", "resume", order.storage_dir])
    causes, cause = [], result.error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__  # type: ignore[assignment]
    if order.faults.is_empty or any(isinstance(one, _OF_THE_JOB) for one in causes):
        return f"{FIX_FIRST} {command}"
    return command


def _after_unknown(order: RunOrder, result: ExecutionResult) -> str:
    """Propose to take a savepoint earlier if it came too late; one that failed would fail again."""
    command = [*again(order, order.options), *order.faults.options()]
    if any(one.error is not None for one in result.savepoints):
        return f"{FIX_FIRST} {shlex.join(command)}"
    if not result.savepoints:
        return shlex.join([*command, "--trace"])
    option = "--savepoint-at" if order.savepoints.stop_time is None else "--stop-with-savepoint"
    return shlex.join([*command, option, duration_text((result.ended_ns - result.started_ns) // 2)])


def again(order: RunOrder, options: RunOptions) -> list[str]:
    """The command of the run, with these options and without faults, from where it started if that is still there."""
    start = order.restore_from
    if start is None or not os.path.exists(start.path):
        # A snapshot that the run has claimed may be gone.
        return _command(order, options)
    return [*_command(order, options), "--from", start.path, "--claim-mode", start.mode.value]


def _command(order: RunOrder, options: RunOptions) -> list[str]:
    """The typed command, as far as it names the job and its options."""
    command = ["weir", "run", order.loaded.path]
    for name, value in order.loaded.params.items():
        command += ["--param", f"{name}={value}"]
    return command + options.as_arguments() + (["--ledger"] if order.ledger else [])


def _surviving(options: RunOptions) -> RunOptions:
    """The options without those that make a job unable to survive a kill."""
    for option in ("restart", "acker_timeout"):
        if options.get(option) == "none":
            options = options.without(option)
    return options


def _somebody(order: RunOrder) -> str:
    """The subtask to kill in an example: one after the sources, if there is any."""
    vertices = order.loaded.job.plan().vertices
    inner = [vertex for vertex in vertices if not vertex.is_source]
    return f"{(inner or list(vertices))[0].operators[0].name}[0]"


def _unused(name: str) -> str:
    """A directory of this name, or a similar one, that does not exist."""
    names = [name, *(f"{name}-{number}" for number in range(2, 100))]
    return next((one for one in names if not os.path.exists(one)), name)
