"""``weir sweep``: run a job for every combination of settings and seeds, and show the means."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import click

import engine
from engine.cli.runs import spread_option
from engine.cli.settings import given_settings, load_maker, parse_params, preset_option, setting_options
from engine.cli.shell import AtLeast, Terminated
from engine.cli.text import error_console, job_output_dropped, progress_of, say
from engine.elements.errors import EXIT_UNKNOWN, EXIT_VALID, ConfigurationError
from engine.elements.setting_fields import DURATION
from engine.protocols import protocol_named
from engine.report.units import plural
from engine.runtime.config import JobSettings, find_setting, read_setting

if TYPE_CHECKING:
    from rich.console import Console

    from engine.graph.job import Job
    from engine.report import RunResult
    from engine.study import StudyIdentity, StudyTable

_HELP = """Run the job that JOB defines for every combination of the values of --grid, with each of the seeds.

NAME is a setting, by our name, or a parameter of job(). A row per run goes to --out as the run ends, and a sweep that
was interrupted goes on from there. weir report shows the file.

\b
Examples:
  weir sweep wordcount.py --grid checkpoint_interval=1ms,10ms --grid mode=aligned,unaligned --seeds 20
  weir sweep wordcount.py --grid records=1000,10000 --metric end_to_end_p99 --jobs 2 --out results.parquet
  weir sweep wordcount.py --seeds 10000 --on spark=spark://host:7077 --out results.parquet
"""


@click.command("sweep", help=_HELP)
@click.argument("job_file", metavar="JOB")
@click.option(
    "--grid", "grids", multiple=True, metavar="NAME=A,B,…", help="Values of a setting or a parameter. Repeatable."
)
@click.option("--seeds", type=AtLeast(1), default=1, show_default=True, help="Seeds of each combination: 0, 1, …")
@click.option("--jobs", type=AtLeast(1), default=1, show_default=True, help="Runs at the same time.")
@spread_option
@click.option(
    "--metric", "metrics", multiple=True, help="What to show the mean of. Repeatable. [default: makespan]"
)
@setting_options
@preset_option
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@click.option("--out", metavar="FILE", help="Results, .parquet or .jsonl. Runs with a row there are not made again.")
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON on standard output.")
def command(
    job_file: str,
    grids: tuple[str, ...],
    seeds: int,
    jobs: int,
    on: str | None,
    metrics: tuple[str, ...],
    definitions: tuple[str, ...],
    config_file: str | None,
    preset: str | None,
    params: tuple[str, ...],
    out: str | None,
    as_json: bool,
) -> int:
    from engine.study import sweep

    console = error_console()
    given = given_settings(definitions, config_file, preset)
    fixed = {name: str(value) for name, value in given.values.items()}
    named, values = parse_params(params), _grid(grids)
    _check(values, fixed, named)
    with job_output_dropped():
        # The values of a grid may be parameters that job() needs.
        first = {name: texts[0] for name, texts in values.items() if not _is_setting(name)}
        make, content = load_maker(job_file)
        name = make({**named, **first}).name
    identity = identity_of_job(name, content, (fixed, named), (*values, "seed"))
    cases = _cases(values, seeds)
    say(console, f"weir {engine.__version__}: sweep of job {name}, {plural(len(cases), 'run')}")
    with rows_told(console, identity, out, metrics) as told:
        table = sweep(
            partial(_run, make, named, fixed), cases=cases, jobs=jobs, on=on, out=out, progress=told, identity=identity
        )
    if as_json:
        click.echo(json.dumps(list(table), indent=2))
    else:
        show_means(table, metrics)
    if out is not None:
        say(console, f"Next: weir report {out}")
    return EXIT_UNKNOWN if table.failed else EXIT_VALID


def identity_of_job(name: str, content: bytes, asked: object, arguments: Sequence[str]) -> StudyIdentity:
    """Of a study of the job of a file with this content; ``asked``: what else decides its rows."""
    from engine.study import StudyIdentity

    digest = blake2b(content + json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()
    return StudyIdentity(name, digest, engine.__version__, tuple(sorted(arguments)))


@contextmanager
def rows_told(
    console: Console, identity: StudyIdentity, out: str | None, metrics: tuple[str, ...] = ()
) -> Iterator[Callable[[int, int, Mapping[str, Any]], None]]:
    """Gives what a sweep calls with each row. It says which runs failed and, on a terminal, how far the sweep is.

    It raises :class:`ConfigurationError` when the first run lacks a metric: the others need not be made. When the sweep
    is interrupted, it says that the rows are kept.
    """
    from engine.study import StudyTable, row_text

    unchecked = {*metrics}
    shown: AbstractContextManager[Callable[[int, int], None] | None] = nullcontext(None)
    if console.is_terminal:
        shown = progress_of(console, lambda done, of: f"{done} of {plural(of, 'run')}", forks=True)
    with shown as show:

        def told(done: int, of: int, row: Mapping[str, Any]) -> None:
            if show is not None:
                show(done, of)
            if row["status"] != "ok":
                say(console, f"{done}/{of}  {row_text(row, identity.arguments)}")
            else:
                while unchecked:
                    StudyTable(identity.study, identity.arguments, [dict(row)]).mean(unchecked.pop())

        try:
            yield told
        except (KeyboardInterrupt, Terminated):
            if out is not None and (os.path.exists(out) or os.path.exists(f"{out}.journal")):
                say(console, f"{out} keeps the runs that have ended; the same command makes the others")
            raise


def show_means(table: StudyTable, metrics: tuple[str, ...]) -> None:
    """The mean of each metric, for every combination of arguments."""
    for metric in metrics or default_metrics(table):
        means = table.mean(metric)
        click.echo(f"{means.name}: mean and 95 % confidence interval\n{means.text()}")


def default_metrics(table: StudyTable) -> tuple[str, ...]:
    """The first one that has numbers."""
    numbers = (one for one in table.measures if any(isinstance(row.get(one), (int, float)) for row in table))
    return (next(numbers, "makespan"),)


def _grid(texts: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not all(values.split(",")):
            raise ConfigurationError(f"--grid {text!r} is not of the form NAME=A,B; e.g. --grid mode=aligned,unaligned")
        if name in found or name == "seed":
            again = "given twice" if name in found else "what --seeds counts"
            raise ConfigurationError(f"--grid {name} is {again}; leave it out")
        found[name] = values.split(",")
    return found


def _check(values: Mapping[str, list[str]], fixed: Mapping[str, str], named: Collection[str]) -> None:
    """Raises :class:`ConfigurationError` for values that are no good in any run: no row shall be written then."""
    for name, text in fixed.items():
        _check_setting(name, text)
    for name, texts in values.items():
        if name in fixed or name in named:
            raise ConfigurationError(f"--grid {name} is given as one value, too; leave one out")
        for text in texts if _is_setting(name) else ():
            try:
                _check_setting(name, text)
            except ConfigurationError as error:
                raise ConfigurationError(f"--grid {name}={text}: {error}") from None


def _check_setting(name: str, text: str) -> None:
    read_setting(name, text)
    settings_of_run({name: text})
    if name == "mode":
        protocol_named(text)


def _cases(values: Mapping[str, list[str]], seeds: int) -> list[dict[str, Any]]:
    from engine.study.case_grid import grid

    return grid({**values, "seed": range(seeds)})


def _is_setting(name: str) -> bool:
    try:
        find_setting(name)
    except ConfigurationError:
        return False
    return True


def _run(make: Callable[..., Job], params: Mapping[str, str], fixed: Mapping[str, str], **values: Any) -> RunResult:
    """One run. Relative paths of sinks are in a directory that is deleted after it."""
    texts = {**fixed, **{name: str(value) for name, value in values.items() if name == "seed" or _is_setting(name)}}
    named = {**params, **{name: value for name, value in values.items() if name != "seed" and not _is_setting(name)}}
    job = built(make, named, texts)
    with tempfile.TemporaryDirectory() as directory:
        return job.run(**settings_of_run(texts), output_dir=os.path.join(directory, "out"))


_OF_THE_JOB = ("parallelism", "max_parallelism")


def built(make: Callable[..., Job], params: Mapping[str, str], texts: Mapping[str, str]) -> Job:
    """The job of a file, by ``load_maker``, with those of the settings that decide how it is built."""
    numbers = [read_setting(name, texts[name]) if name in texts else None for name in _OF_THE_JOB]
    return make(params, *numbers)


def settings_of_run(texts: Mapping[str, str]) -> dict[str, Any]:
    """The other settings as ``Job.run`` takes them."""
    found: dict[str, Any] = {}
    # A setting comes before its values for single tasks: service=…, service.count=….
    for name, text in sorted(texts.items()):
        one, task = find_setting(name)
        if task is not None:
            found[one.name] = {**found.get(one.name, {}), task: read_setting(name, text)}
        elif name not in _OF_THE_JOB:
            found[name] = _value(name, text)
    return found


def _value(name: str, text: str) -> Any:
    """A time stays a text."""
    one, _ = find_setting(name)
    if one.name in JobSettings.__dataclass_fields__ and one.name != "preset":
        raise ConfigurationError(f"{name}: a study keeps checkpoints in memory; leave it out")
    return text if one.kind is DURATION and text != one.about.none_text else read_setting(name, text)
