"""``weir run``: run a job file from the beginning."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

import click

import engine
from engine.cli.runs import (
    RunOrder,
    SavepointWishes,
    check_job,
    check_orders,
    check_where,
    claim_directory,
    drive,
    explain_on_spark,
    hold_claimed,
    hold_directory,
    next_run_directory,
    on_option,
    refuse_taken,
    restore_from,
    restore_options,
    savepoint_options,
    used_incarnations,
)
from engine.cli.settings import (
    OUTPUT_NAME,
    JobDescriptor,
    RunOptions,
    config_options,
    given_settings,
    html_option,
    is_url,
    load_job,
    parse_params,
    perfetto_option,
    place,
    preset_option,
    run_options,
    setting_options,
    write_descriptor,
)
from engine.cli.shell import OneOf
from engine.cli.text import error_console, say
from engine.elements.errors import ConfigurationError
from engine.faults.fault_plan import FaultPlan
from engine.runtime.config import parse_where
from engine.runtime.storage import open_storage

_HELP = """Run the job that JOB, a Python file, defines as `job`.

JOB holds a function job(...) that returns an engine.Job, or a variable of that name. Relative sink paths land
in out/<job>/<number>/, together with run.json, the whole report. All durations are virtual time.

\b
Examples:
  weir run wordcount.py
  weir run wordcount.py --seed 7 --checkpoint-interval 2ms --kill 'count[1]@3ms'
  weir run wordcount.py --storage state/ --checkpoint-interval 10000rec
  weir run wordcount.py --param repeat=5000 --json > report.json
  weir run wordcount.py --stop-with-savepoint 5ms --savepoint-dir saved/
  weir run wordcount.py --from saved/savepoint-… --parallelism 4
  weir run wordcount.py --explain mermaid
  weir run wordcount.py --preset small-cluster -D execution.checkpointing.interval=1ms
  weir run wordcount.py --config flink/config.yaml --set cost.link_latency=2ms
  weir run wordcount.py --mode at-least-once --kill 'count[1]@3ms' --ledger
  weir run wordcount.py --kill 'count[1]@3ms' --html run.html
  weir run wordcount.py --on spark --storage state/
"""


@click.command("run", help=_HELP)
@click.argument("job_file", metavar="JOB")
@config_options
@setting_options
@preset_option
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@click.option(
    "--storage",
    metavar="DIR",
    help="Keep checkpoints in DIR, a directory or a URL; after a crash go on with weir resume DIR.",
)
@click.option("--out", metavar="DIR", help="Directory of this run's output. [default: out/<job>/<number>]")
@restore_options
@click.option(
    "--allow-non-restored-state",
    is_flag=True,
    help="With --from: drop state of operators that the job does not have, instead of refusing.",
)
@savepoint_options
@click.option(
    "--ledger",
    is_flag=True,
    help="Keep which record has had which effects, and say which were lost or applied twice, and why. Slow.",
)
@run_options
@html_option
@perfetto_option
@on_option
@click.option(
    "--explain",
    is_flag=False,
    flag_value="text",
    type=OneOf(["text", "mermaid"]),
    help="Print the plan, and each setting that is not at its default, on standard output and run nothing.",
)
def command(
    job_file: str,
    definitions: tuple[str, ...],
    config_file: str | None,
    preset: str | None,
    params: tuple[str, ...],
    storage: str | None,
    out: str | None,
    kills: tuple[str, ...],
    fault_texts: tuple[str, ...],
    paranoid: bool,
    table: bool,
    as_json: bool,
    trace: str | None,
    explain: str | None,
    restore_path: str | None,
    claim_mode: str | None,
    allow_non_restored_state: bool,
    savepoint_times: tuple[str, ...],
    savepoint_dir: str | None,
    savepoint_format: str,
    stop_time: str | None,
    drain: bool,
    ledger: bool,
    on: str | None,
    html: str | None,
    perfetto: str | None,
    **options: str | int | bool | None,
) -> int:
    given = given_settings(definitions, config_file, preset).with_options(options)
    values = dict(given.values)
    storage, place_of_savepoints = _place(values, "storage", storage), _place(values, "savepoint_dir", savepoint_dir)
    if savepoint_times or stop_time is not None:
        savepoint_dir = place_of_savepoints  # otherwise the setting is for savepoints of other runs
    chosen = RunOptions(values)
    faults = FaultPlan.parse(kills, fault_texts)
    wishes = SavepointWishes(savepoint_times, savepoint_dir, savepoint_format, stop_time, drain)
    config = chosen.to_config()
    loaded = load_job(job_file, parse_params(params), chosen.number("parallelism"), chosen.number("max_parallelism"))
    for note in given.notes:
        say(error_console(), f"note: {note}")
    where = parse_where(on)
    if explain is not None:
        if where is None:
            click.echo(loaded.job.explain(explain))  # type: ignore[arg-type]
        else:
            click.echo(explain_on_spark(loaded.job.plan(), config))
        if explain == "text" and given.explained():
            click.echo("\n".join(["", "settings that are not at their default:", *given.explained()]))
        return 0
    # Invalid options are refused before anything is created.
    check_orders(loaded.job.plan(), config, faults, wishes)
    start = restore_from(restore_path, claim_mode, config.backend().name)
    if allow_non_restored_state and start is None:
        raise ConfigurationError("--allow-non-restored-state is about state to start from: add --from PATH")
    if ledger and start is not None:
        raise ConfigurationError(
            "--ledger cannot say what is in a snapshot that was taken without it, and --from starts from one\n"
            "  fix: leave one of the two out"
        )
    only_simulated = [
        ("--kill", kills), ("--fault", fault_texts), ("--paranoid", paranoid), ("--ledger", ledger),
        ("--html", html), ("--perfetto", perfetto),
        ("--savepoint-at", savepoint_times), ("--stop-with-savepoint", stop_time),
    ]  # fmt: skip
    check_where(where, storage, only_simulated)
    check_job(where, loaded.job.plan(), config)
    # A run that resumes from another one may continue its output, too.
    continues = None if start is None else loaded.job.name
    order = RunOrder(
        loaded,
        chosen,
        faults,
        "",
        as_json,
        trace,
        savepoints=wishes,
        restore_from=start,
        allow_non_restored_state=allow_non_restored_state,
        paranoid=paranoid,
        ledger=ledger,
        table=table,
        on=where,
        html=html,
        perfetto=perfetto,
    )
    with ExitStack() as stack:
        if storage is None:
            stack.enter_context(hold_claimed(start))
            output_dir = next_run_directory(loaded.job.name) if out is None else claim_directory(out, continues)
            incarnation = used_incarnations(start, output_dir, loaded.job.name) + 1
            return drive(replace(order, output_dir=output_dir, incarnation=incarnation))
        (file_system, directory), name = place(storage), loaded.job.name
        stack.enter_context(hold_directory(file_system, directory))
        refuse_taken(file_system, directory, name)
        stack.enter_context(hold_claimed(start))
        if out is None and is_url(directory):
            # Sinks write to this machine.
            output_dir = next_run_directory(name)
        else:
            output_dir = claim_directory(os.path.join(directory, OUTPUT_NAME) if out is None else out, continues)
        opened = stack.enter_context(
            open_storage(
                directory,
                name,
                inline_state_bytes=config.inline_state_bytes,
                file_system=file_system,
                behind=used_incarnations(start, output_dir, name),
            )
        )
        descriptor = JobDescriptor(
            loaded.path,
            name,
            dict(loaded.params),
            chosen,
            _seen_from(directory, output_dir),
            os.getcwd(),
            engine.__version__,
            None if start is None else start.path,
            None if start is None else start.mode.value,
            on=None if where is None else where.text,
        )
        write_descriptor(file_system, directory, descriptor)
        return drive(
            replace(
                order,
                output_dir=output_dir,
                storage=opened.storage,
                storage_dir=directory,
                incarnation=opened.incarnation,
            )
        )


def _place(values: dict[str, str | int | bool], name: str, typed: str | None) -> str | None:
    """A directory as its option names it, or else the setting, which is taken out."""
    value = values.pop(name, None)
    return str(value) if typed is None and value not in (None, "none") else typed


def _seen_from(directory: str, output_dir: str) -> str:
    """``output_dir`` as the descriptor names it: relative when it lies inside, so that both can be moved together."""
    inside = not is_url(directory) and os.path.commonpath([directory, output_dir]) == directory
    return os.path.relpath(output_dir, directory) if inside else output_dir
