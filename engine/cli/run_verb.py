"""``weir run``: run a job file from the beginning."""

from __future__ import annotations

import os
from contextlib import ExitStack

import click

import engine
from engine.cli.descriptor import (
    OUTPUT_NAME,
    RESERVED_NAMES,
    JobDescriptor,
    has_descriptor,
    read_descriptor,
    write_descriptor,
)
from engine.cli.driver import RunOrder, drive
from engine.cli.job_file import LoadedJob, load_job
from engine.cli.options import RunOptions, config_options, parse_params, run_options
from engine.cli.run_directory import claim_directory, next_run_directory
from engine.cli.storage import HeldStorage, hold_storage
from engine.elements.errors import ConfigurationError, StorageError
from engine.faults.plan import FaultPlan
from state_backends.filesystem import LocalFileSystem

_HELP = """Run the job that JOB, a Python file, defines as `job`.

JOB holds a function job(...) that returns an engine.Job, or a variable of that name. Relative sink paths land
in out/<job>/<number>/, together with run.json, the whole report. All durations are virtual time.

\b
Examples:
  weir run wordcount.py
  weir run wordcount.py --seed 7 --kill 'count[1]@120ms' --mode at-least-once
  weir run wordcount.py --storage state/ --checkpoint-interval 10000rec
  weir run wordcount.py --param lines=1000 --json > report.json
  weir run wordcount.py --explain mermaid
"""


@click.command("run", help=_HELP)
@click.argument("job_file", metavar="JOB")
@config_options
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@click.option("--storage", metavar="DIR", help="Keep checkpoints in DIR; after a crash go on with weir resume DIR.")
@click.option("--out", metavar="DIR", help="Directory of this run's output. [default: out/<job>/<number>]")
@run_options
@click.option(
    "--explain",
    is_flag=False,
    flag_value="text",
    type=click.Choice(["text", "mermaid"]),
    help="Print the plan on standard output and run nothing.",
)
def command(
    job_file: str,
    params: tuple[str, ...],
    storage: str | None,
    out: str | None,
    kills: tuple[str, ...],
    as_json: bool,
    trace: str | None,
    explain: str | None,
    **options: object,
) -> int:
    """See the help text."""
    chosen = RunOptions(**options)  # type: ignore[arg-type]
    faults = FaultPlan.parse(kills)
    config = chosen.to_config()
    loaded = load_job(job_file, parse_params(params), chosen.parallelism)
    if explain is not None:
        click.echo(loaded.job.explain(explain))  # type: ignore[arg-type]
        return 0
    loaded.job.plan()
    with ExitStack() as stack:
        held = None
        if storage is not None:
            held = stack.enter_context(_begin_storage(os.path.abspath(storage), loaded, config.inline_state_bytes))
        output_dir = _output_dir(out, held, loaded)
        if held is not None:
            write_descriptor(
                LocalFileSystem(),
                held.directory,
                JobDescriptor.of(
                    loaded,
                    chosen,
                    output_dir=output_dir,
                    working_dir=os.getcwd(),
                    weir_version=engine.__version__,
                ),
            )
        return drive(
            RunOrder(
                loaded,
                chosen,
                faults,
                output_dir,
                as_json,
                trace,
                storage=None if held is None else held.storage,
                storage_dir=None if held is None else held.directory,
                incarnation=1 if held is None else held.incarnation,
            )
        )


def _output_dir(out: str | None, held: HeldStorage | None, loaded: LoadedJob) -> str:
    if out is not None:
        return claim_directory(out)
    if held is not None:
        return claim_directory(os.path.join(held.directory, OUTPUT_NAME))
    return next_run_directory(loaded.job.name)


def _begin_storage(directory: str, loaded: LoadedJob, inline_state_bytes: int) -> HeldStorage:
    """Take a storage directory for a new run.

    Raises :class:`StorageError` when it is in use, cannot be written, or holds a run already.
    """
    name = loaded.job.name
    if name in RESERVED_NAMES:
        raise ConfigurationError(
            f"job {name!r}: a storage directory keeps a file or directory of its own under that name\n"
            "  fix: give the job another name"
        )
    held = hold_storage(directory, name, inline_state_bytes)
    try:
        if has_descriptor(LocalFileSystem(), directory):
            other = read_descriptor(LocalFileSystem(), directory)
            raise StorageError(
                f"{directory}: holds job {other.job_name!r} of {other.job_file}\n"
                f"  fix: go on with it (weir resume {directory}), or choose a new directory for a new run"
            )
        if held.storage.highest_checkpoint_id():
            raise StorageError(
                f"{directory}: holds checkpoints of a job {name!r} that was not started by weir run\n"
                "  fix: choose a new directory"
            )
    except BaseException:
        held.release()
        raise
    return held
