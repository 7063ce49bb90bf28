"""``weir resume``: resume the job of a storage directory, after any kind of end."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Any

import click

from engine.cli.runs import (
    RunOrder,
    SavepointWishes,
    check_job,
    check_orders,
    check_where,
    drive,
    hold_claimed,
    hold_directory,
    newest_usable,
    on_option,
    savepoint_options,
)
from engine.cli.settings import (
    ACCEPT_OPTION,
    STATE_SETTINGS,
    JobDescriptor,
    LoadedJob,
    RunOptions,
    absolute,
    accept_option,
    definition_option,
    given_settings,
    html_option,
    load_job,
    note_descriptor,
    place,
    read_descriptor,
    run_options,
    state_options,
)
from engine.cli.text import error_console, say
from engine.elements.errors import ConfigurationError, JobChangedError, JobFileError, StorageError
from engine.faults.fault_plan import FaultPlan
from engine.runtime.config import parse_where
from engine.runtime.storage import check_forms, open_storage

_HELP = """Go on with the job that was started with weir run --storage DIR.

The job starts from its newest usable checkpoint, with the options and parameters of the first start; those about
state may be changed, as long as the checkpoint can be read. It runs where it ran last, in the simulator or on Spark,
unless --on says otherwise. A damaged checkpoint is reported and the next older one
is used. The committed output is that of an undisturbed run.

\b
Examples:
  weir resume state/
  weir resume state/ --json > report.json
  weir resume state/ --on simulator                here, and not on Spark, where the job ran last
  weir resume state/ --allow-non-restored-state    an operator was removed from the job
  weir resume state/ --accept-descriptor           weir-job.json was edited: the job file lies elsewhere now
"""


@click.command("resume", help=_HELP)
@click.argument("directory", metavar="DIR")
@click.option(
    "--allow-non-restored-state",
    is_flag=True,
    help="Drop state of operators that the job has no more, instead of refusing.",
)
@accept_option
@state_options
@definition_option
@savepoint_options
@run_options
@html_option
@on_option
def command(
    directory: str,
    allow_non_restored_state: bool,
    accept_descriptor: bool,
    definitions: tuple[str, ...],
    savepoint_times: tuple[str, ...],
    savepoint_dir: str | None,
    savepoint_format: str,
    stop_time: str | None,
    drain: bool,
    kills: tuple[str, ...],
    fault_texts: tuple[str, ...],
    paranoid: bool,
    table: bool,
    as_json: bool,
    trace: str | None,
    on: str | None,
    html: str | None,
    **typed: Any,
) -> int:
    faults = FaultPlan.parse(kills, fault_texts)
    if savepoint_dir is not None:
        savepoint_dir = absolute(savepoint_dir)
    wishes = SavepointWishes(savepoint_times, savepoint_dir, savepoint_format, stop_time, drain)
    parse_where(on)
    only_simulated = [
        ("--kill", kills), ("--fault", fault_texts), ("--paranoid", paranoid), ("--html", html),
        ("--savepoint-at", savepoint_times), ("--stop-with-savepoint", stop_time),
    ]  # fmt: skip
    file_system, directory = place(directory)
    trace, html = (os.path.abspath(one) if one else one for one in (trace, html))
    # Before holding the directory, which would create a missing one.
    read_descriptor(file_system, directory, accept=accept_descriptor)
    with hold_directory(file_system, directory):
        descriptor = read_descriptor(file_system, directory, accept=accept_descriptor)
        if accept_descriptor:
            say(error_console(), f"note: weir-job.json is taken as it is: {descriptor.summary()}")
        _refuse_stopped(descriptor, directory)
        where = parse_where(descriptor.on if on is None else on)
        check_where(where, directory, only_simulated)
        _go_to(descriptor.working_dir)
        loaded = _load_again(descriptor, directory)
        # The options of the first start, with those about state that were typed now.
        options = _changed(descriptor.options, definitions).with_options(typed)
        config = options.to_config()
        check_orders(loaded.job.plan(), config, faults, wishes)
        check_job(where, loaded.job.plan(), config)
        with (
            hold_claimed(descriptor.restore_from()),
            open_storage(
                directory, descriptor.job_name, inline_state_bytes=config.inline_state_bytes, file_system=file_system
            ) as opened,
        ):
            checkpoint_id, problems = newest_usable(opened.storage, directory)
            _warn(problems, checkpoint_id)
            if options != descriptor.options and checkpoint_id is not None:
                check_forms(opened.storage.read_metadata(checkpoint_id), config.backend().name)
            decided = replace(descriptor, options=options, on=None if where is None else where.text)
            if decided != descriptor or accept_descriptor:
                note_descriptor(file_system, directory, decided)
            output_dir = os.path.normpath(os.path.join(directory, descriptor.output_dir))
            os.makedirs(output_dir, exist_ok=True)
            order = RunOrder(
                loaded,
                options,
                faults,
                output_dir,
                as_json,
                trace,
                storage=opened.storage,
                storage_dir=directory,
                incarnation=opened.incarnation,
                restore=True,
                restore_from=descriptor.restore_from(),
                savepoints=wishes,
                allow_non_restored_state=allow_non_restored_state,
                paranoid=paranoid,
                table=table,
                on=where,
                html=html,
            )
            return drive(order)


def _changed(options: RunOptions, definitions: tuple[str, ...]) -> RunOptions:
    """The options of the first start with settings that were typed now. Only state and costs may change."""
    given = given_settings(definitions)
    for note in given.notes:
        say(error_console(), f"note: {note}")
    for name in given.values:
        if name not in STATE_SETTINGS and not name.startswith("cost."):
            raise ConfigurationError(
                f"--set {name}: a resumed job keeps that of its first start; only state and costs may change"
            )
    return RunOptions({**options.values, **given.values})


def _refuse_stopped(descriptor: JobDescriptor, directory: str) -> None:
    """Refuse: output that the savepoint has committed would be taken back and repeated from an older checkpoint."""
    if descriptor.stopped_with is None:
        return
    backend = descriptor.options.get("state_backend")
    options = [] if backend is None else ["--state-backend", str(backend)]
    again = shlex.join(
        ["weir", "run", descriptor.job_file, "--from", descriptor.stopped_with, "--storage", "NEW", *options]
    )
    raise StorageError(
        f"{directory}: the job was stopped with savepoint {descriptor.stopped_with}, which is newer than every"
        f" checkpoint here\n  fix: go on from it: {again}"
    )


def _load_again(descriptor: JobDescriptor, directory: str) -> LoadedJob:
    if not os.path.exists(descriptor.job_file):
        raise JobFileError(
            f"{descriptor.job_file}: the job file that {directory} was started with is gone\n"
            "  fix: put it back, or write its new place into job_file of "
            f"{os.path.join(directory, 'weir-job.json')} and add {ACCEPT_OPTION}"
        )
    loaded = load_job(
        descriptor.job_file,
        descriptor.params,
        descriptor.options.number("parallelism"),
        descriptor.options.number("max_parallelism"),
    )
    if loaded.job.name != descriptor.job_name:
        raise JobChangedError(
            f"{descriptor.job_file} now defines job {loaded.job.name!r}, but {directory} holds job"
            f" {descriptor.job_name!r}\n"
            "  fix: give the job its old name, or run the new one with another --storage"
        )
    return loaded


def _go_to(working_dir: str) -> None:
    """Make relative paths of the job's sources mean the same as when the run was started."""
    try:
        os.chdir(working_dir)
    except OSError as error:
        raise StorageError(
            f"{working_dir}: the directory in which the run was started cannot be entered ({error.strerror})\n"
            "  the job's relative paths start there; fix: create it, or edit working_dir in weir-job.json and add"
            f" {ACCEPT_OPTION}"
        ) from error


def _warn(problems: list[str], checkpoint_id: int | None) -> None:
    console = error_console()
    for problem in problems:
        say(console, f"warning: {problem}")
    if problems:
        say(
            console,
            f"warning: going back to checkpoint {checkpoint_id}; file sinks take back what later ones had committed,"
            " other sinks will show it a second time",
        )
