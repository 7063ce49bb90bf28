"""Drives one run for the command line: instruments, faults, progress, report, verdict and exit code.

The shared part of ``weir run`` and ``weir resume``, once they know the job, its place and its start.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

import engine
from engine.checkpoint.restore import UnmatchedStateError
from engine.cli.runs.directory import report_json, write_report
from engine.cli.runs.injected_faults import surroundings, survived
from engine.cli.runs.next_step import next_step
from engine.cli.runs.on_spark import costs_of_batches, run_on_spark
from engine.cli.runs.savepoint_options import SavepointWishes
from engine.cli.settings import SAVEPOINTS_NAME, LoadedJob, RunOptions, is_url, note_stopped, place
from engine.cli.shell import Terminated, failure_text, is_expected
from engine.cli.text import error_console, progress_line, say, stdout_kept_clean
from engine.elements.errors import ConfigurationError, StorageError
from engine.faults.fault_plan import FaultPlan
from engine.graph.plan import ExecutionPlan
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace import TraceDigest, TraceWriter
from engine.observe.trace_events import AttemptStarted, Instrument, RunStarted, TraceEvent
from engine.report.report import RunFacts, build_report
from engine.report.summary import summary_lines
from engine.report.text import print_report
from engine.report.units import format_ns
from engine.report.verdict import Verdict, judge_run
from engine.runtime.config import RunConfig, SparkCluster
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.job import STOPPED, SavepointReport
from engine.runtime.storage import SavepointRestore
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage

if TYPE_CHECKING:
    from engine.cli.runs.ledger_audit import LedgerAudit
    from engine.cli.runs.run_page import RunPage


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One run to make.

    ``output_dir``   absolute; relative sink paths and ``run.json`` land there;
    ``storage``      ``None`` = checkpoints in memory; ``storage_dir`` is the directory it was opened in;
    ``trace``        ``None`` = no trace, ``""`` = beside ``run.json``, else the file;
    ``restore``      resume from the newest checkpoint in the storage; ``restore_from``: or from this snapshot;
    ``paranoid``     forbidden calls of the job's functions are errors;
    ``ledger``       the effects of each record are noted, and judged;
    ``table``        the tables of tasks and checkpoints are printed before the summary;
    ``on``           ``None`` = in the simulator, else where it runs;
    ``html``         the file for the page of the run, ``None`` = no page;
    ``perfetto``     the file for its trace in Perfetto's format, ``None`` = no such trace.
    """

    loaded: LoadedJob
    options: RunOptions
    faults: FaultPlan
    output_dir: str
    as_json: bool
    trace: str | None
    storage: CheckpointStorage | None = None
    storage_dir: str | None = None
    incarnation: int = 1
    restore: bool = False
    allow_non_restored_state: bool = False
    restore_from: SavepointRestore | None = None
    savepoints: SavepointWishes = field(default_factory=SavepointWishes)
    paranoid: bool = False
    ledger: bool = False
    table: bool = False
    on: SparkCluster | None = None
    html: str | None = None
    perfetto: str | None = None

    @property
    def savepoint_dir(self) -> str:
        """The place of savepoints without a directory of their own."""
        root = self.output_dir if self.storage_dir is None or is_url(self.storage_dir) else self.storage_dir
        return os.path.join(root, SAVEPOINTS_NAME)


class _Watcher:
    """An instrument: notes when the run started; for a resumed run it prints from which checkpoint."""

    def __init__(self, console: Console, announce: bool) -> None:
        self.started_ns = 0
        self._console = console
        self._announce = announce

    def __call__(self, event: TraceEvent) -> None:
        if event.__class__ is RunStarted:
            self.started_ns = event.time_ns
        elif event.__class__ is AttemptStarted and self._announce:
            self._announce = False
            if event.restored_checkpoint is None:
                say(self._console, "no checkpoint had completed: starting from the beginning")
            else:
                say(self._console, f"restored checkpoint {event.restored_checkpoint}")


def check_orders(plan: ExecutionPlan, config: RunConfig, faults: FaultPlan, savepoints: SavepointWishes) -> None:
    """Raise :class:`ConfigurationError` when a fault matches no task, or a savepoint cannot be taken, before anything
    is created for the run."""
    savepoints.check()
    execution = Execution(plan, config)
    faults.install(execution)
    if faults.faults:
        from engine.faults.injector import FaultInjector

        FaultInjector(faults.faults).install(execution)
    savepoints.install(execution, SAVEPOINTS_NAME)


def drive(order: RunOrder) -> int:
    """Make the run, print and store its report, and return the exit code.

    Raises :class:`engine.elements.errors.WeirError` when the run cannot start: a fault matches no task, an option
    is invalid, the job does not fit its state.
    """
    try:
        return _drive(order)
    except UnmatchedStateError as error:
        # The raising package knows no command line. With storage, the run has begun: it is resumed.
        again = "the same command with --allow-non-restored-state"
        if order.storage_dir is not None:
            again = shlex.join(["weir", "resume", order.storage_dir, "--allow-non-restored-state"])
        error.add_note(f"here: {again}")
        raise


def _drive(order: RunOrder) -> int:
    console, began = error_console(), time.perf_counter()
    config = order.options.to_config(allow_non_restored_state=order.allow_non_restored_state)
    plan = order.loaded.job.plan()
    say(console, first_line(order))
    announces = order.restore or order.restore_from is not None
    oracle, digest, watcher = CutOracle(), TraceDigest(), _Watcher(console, announces)
    trace_path = _trace_path(order)
    around = surroundings(order, config, plan)
    page = _page(order)
    audit = _audit(plan, config, order)
    with _trace_writer(trace_path) as writers, _perfetto_writer(order.perfetto, plan) as more_writers:
        instruments: list[Instrument] = [oracle, digest, watcher, *writers, *more_writers]
        if order.on is not None:
            write_report(order.output_dir, _running(order))
            with stdout_kept_clean(order.as_json), _next_when_ended(order, console):
                result = run_on_spark(order, plan, config, instruments)
        else:
            if page is not None:
                instruments.append(page.recorder.observe)
            execution = Execution(
                around.plan if page is None else page.recorder.of_run(around.plan, order.output_dir),
                config,
                storage=around.storage,
                file_system=around.file_system,
                output_dir=order.output_dir,
                incarnation=order.incarnation,
                instruments=instruments,
                restore=order.restore,
                restore_from=order.restore_from,
                provenance=None if audit is None else audit.ledger,
                choices=around.choices,
                interference=around.injector,
            )
            order.faults.install(execution)
            around.install(execution)
            order.savepoints.install(execution, order.savepoint_dir)
            write_report(order.output_dir, _running(order))
            result = _run(execution, order, console, watcher, page)
    for text in around.unused():
        say(console, f"note: --fault {text} never struck")
    if result.error is not None and not is_expected(result.error):
        raise result.error
    verdict = judge_run(result, oracle, config.protocol)
    if audit is not None:
        with stdout_kept_clean(order.as_json):
            audit.judge()
        verdict = audit.verdict(verdict)
    facts = RunFacts(
        weir_version=engine.__version__,
        python_version=platform.python_version(),
        job_file=order.loaded.path,
        params=order.loaded.params,
        options=order.options.as_dict(),
        faults=order.faults.texts(),
        output_dir=order.output_dir,
        storage_dir=order.storage_dir,
        trace_file=trace_path,
        trace_events=digest.events,
        trace_digest=digest.hexdigest(),
    )
    report = build_report(result, plan, config, oracle, verdict, facts)
    report["savepoints"] = [_savepoint(one) for one in result.savepoints]
    if audit is not None:
        report["ledger"] = audit.as_dict()
    if page is not None:
        page.write(report, verdict, audit)
    _note_stopped(order, result)
    try:
        write_report(order.output_dir, report)
    except StorageError as error:
        if result.error is None:
            raise
        say(console, f"warning: {error}")  # what the job failed of comes last, and decides the exit code
    more = [*([] if audit is None else audit.lines()), *costs_of_batches(began)]
    _tell(order, console, report, result, verdict, more)
    return verdict.exit_code


# A plain run needs nothing of engine.explore, and loading that would take a fifth of its start.


def _audit(plan: ExecutionPlan, config: RunConfig, order: RunOrder) -> LedgerAudit | None:
    if not order.ledger:
        return None
    from engine.cli.runs.ledger_audit import LedgerAudit

    return LedgerAudit(plan, config, order.output_dir)


def _fences(order: RunOrder) -> contextlib.AbstractContextManager[None]:
    if not order.paranoid:
        return contextlib.nullcontext()
    from engine.explore.run import fenced

    return fenced()


def _page(order: RunOrder) -> RunPage | None:
    if order.html is None:
        return None
    from engine.cli.runs.run_page import RunPage

    return RunPage(order)


def _run(
    execution: Execution, order: RunOrder, console: Console, watcher: _Watcher, page: RunPage | None
) -> ExecutionResult:
    with (
        _next_when_ended(order, console),
        progress_line(console, lambda: watcher.started_ns) as progress,
        stdout_kept_clean(order.as_json),
        _fences(order),
        survived(order),
        contextlib.nullcontext() if page is None else page.if_it_dies(),
    ):
        return execution.run(progress) if page is None else page.recorder.run(execution, progress)


@contextlib.contextmanager
def _next_when_ended(order: RunOrder, console: Console) -> Iterator[None]:
    """After Ctrl-C and SIGTERM, say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        if order.storage_dir is not None:
            say(console, f"Next: {shlex.join(['weir', 'resume', order.storage_dir])}")
        raise


def first_line(order: RunOrder) -> str:
    """Seed, versions, mode and job: all that is needed to repeat the run."""
    where = "" if order.storage_dir is None else f", incarnation {order.incarnation}"
    on = "" if order.on is None else f" on {order.on.text}"
    return (
        f"weir {engine.__version__} (Python {platform.python_version()}):"
        f" job {order.loaded.job.name}{on}, mode {order.options.get('mode')}, seed {order.options.get('seed')}{where}"
    )


def _tell(
    order: RunOrder,
    console: Console,
    report: dict[str, Any],
    result: ExecutionResult,
    verdict: Verdict,
    more: Sequence[str],
) -> None:
    if order.table:
        print_report(report, console)
        say(console, "")
    if order.as_json:
        click.echo(report_json(report))
    run = report["run"]
    for kill in order.faults.kills:
        # A fault that did not happen must not look like one that was survived.
        if kill.at_ns > run["duration_ns"]:
            say(console, f"note: --kill {kill} never struck: the run was over at +{format_ns(run['duration_ns'])}")
    for number, savepoint in enumerate(result.savepoints):
        option = order.savepoints.option_of(number)
        if savepoint.path is not None:
            say(console, f"savepoint {savepoint.checkpoint_id} in {savepoint.path}")
        if savepoint.error is not None:
            say(console, f"warning: {option} failed: {savepoint.error}")
        elif savepoint.path is None:
            say(console, f"note: {option} never came: the run was over at +{format_ns(run['duration_ns'])}")
    for line in more:
        say(console, line)
    if result.error is not None:
        say(console, failure_text(result.error))
    for line in summary_lines(report, with_table=order.table):
        say(console, line)
    following = next_step(order, verdict, result, _stopped_with(result))
    say(console, f"{verdict.name}: {verdict.reason}. Next: {following}")


def _note_stopped(order: RunOrder, result: ExecutionResult) -> None:
    stopped_with = _stopped_with(result)
    if order.storage_dir is not None and stopped_with is not None:
        note_stopped(*place(order.storage_dir), stopped_with)


def _stopped_with(result: ExecutionResult) -> str | None:
    if result.state != STOPPED:
        return None
    return next(one.path for one in result.savepoints if one.order.stop is not None)


def _savepoint(report: SavepointReport) -> dict[str, Any]:
    order = report.order
    return {
        "at_ns": order.at_ns,
        "format": order.savepoint_format.value,
        "stop": None if order.stop is None else order.stop.value,
        "checkpoint_id": report.checkpoint_id,
        "path": report.path,
        "error": report.error,
    }


def _running(order: RunOrder) -> dict[str, Any]:
    """The content of ``run.json`` until the run has ended; it stays if the run is killed."""
    return {
        "schema": "weir-run-started",
        "weir_version": engine.__version__,
        "job": {"name": order.loaded.job.name, "file": order.loaded.path, "params": dict(order.loaded.params)},
        "run": {"state": "running", "options": order.options.as_dict(), "incarnation": order.incarnation},
    }


def _trace_path(order: RunOrder) -> str | None:
    if order.trace is None:
        return None
    if not order.trace:
        stem = "trace" if order.incarnation == 1 else f"trace-{order.incarnation}"
        return os.path.join(order.output_dir, f"{stem}.jsonl")
    if order.trace.endswith(".py"):
        # `weir run --trace job.py`: the optional FILE has swallowed the job.
        raise ConfigurationError(
            f"--trace {order.trace} would write the trace over a Python file\n"
            "  fix: put --trace after the job file, or name another file"
        )
    return os.path.abspath(order.trace)


@contextlib.contextmanager
def _trace_writer(path: str | None) -> Iterator[Sequence[Instrument]]:
    """The trace writer, if requested. It is closed in any case, because a trace matters most after a failure."""
    if path is None:
        yield ()
        return
    try:
        writer = TraceWriter(LocalFileSystem(), path)
    except OSError as error:
        raise ConfigurationError(
            f"--trace {path}: cannot be written ({error.strerror})\n  fix: name a file in a directory that exists"
        ) from error
    try:
        yield (writer,)
    finally:
        writer.close()


@contextlib.contextmanager
def _perfetto_writer(path: str | None, plan: ExecutionPlan) -> Iterator[Sequence[Instrument]]:
    if path is None:
        yield ()
        return
    from engine.view import perfetto_trace

    with perfetto_trace(path, plan) as trace:
        yield (trace,)
