"""``weir advise``: how often a job should take a checkpoint, and how many tasks it needs."""

from __future__ import annotations

import json
from functools import partial

import click

import engine
from engine.cli.settings import given_settings, load_maker, parse_params, preset_option, setting_options
from engine.cli.shell import AtLeast, OneOf
from engine.cli.text import error_console, job_output_dropped, say
from engine.cli.verbs.sweep import built, identity_of_job, rows_told, settings_of_run
from engine.elements.errors import EXIT_UNKNOWN, EXIT_VALID
from engine.elements.failure_laws import TARGETS, TASK

_HELP = """Say how often the job that JOB defines should take a checkpoint if it fails each --mtbf on average.

Runs of the job measure what a checkpoint costs. From that follow the intervals of Young, of Daly and of the exact
optimum. Then the job is run with random failures, at intervals around them: the same failures at each. With --rate, say
also how many tasks each operator needs, and how much of its state moves when the job is rescaled.

\b
Examples:
  weir advise orders.py --mtbf 6h --set cost.sync=2s
  weir advise orders.py --mtbf 1h --target host --seeds 20 --jobs 2 --plot advice.svg
  weir advise orders.py --mtbf 6h --rate 900/s
"""


@click.command("advise", help=_HELP)
@click.argument("job_file", metavar="JOB")
@click.option("--mtbf", required=True, metavar="TIME", help="Mean time between two failures of the whole job.")
@click.option("--target", type=OneOf(TARGETS), default=TASK, show_default=True, help="What fails.")
@click.option("--rate", metavar="N/s", help="Also say how many tasks handle so many records of all sources.")
@click.option("--seeds", type=AtLeast(2), default=10, show_default=True, help="Runs at each interval.")
@click.option("--jobs", type=AtLeast(1), default=1, show_default=True, help="Runs at the same time.")
@setting_options
@preset_option
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter of job(). Repeatable.")
@click.option("--plot", metavar="FILE", help="Draw the simulation and the formulas to this file, .svg or .png.")
@click.option("--out", metavar="FILE", help="Results, .parquet or .jsonl. Runs with a row there are not made again.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON on standard output.")
def command(
    job_file: str,
    mtbf: str,
    target: str,
    rate: str | None,
    seeds: int,
    jobs: int,
    definitions: tuple[str, ...],
    config_file: str | None,
    preset: str | None,
    params: tuple[str, ...],
    plot: str | None,
    out: str | None,
    as_json: bool,
) -> int:
    from engine.study import advise, check_picture
    from engine.study.advice import ARGUMENTS

    console = error_console()
    if plot is not None:
        check_picture(plot, "--plot")
    given = given_settings(definitions, config_file, preset)
    texts, named = {name: str(value) for name, value in given.values.items()}, parse_params(params)
    with job_output_dropped():
        make, content = load_maker(job_file)
        name = make(named).name
        say(console, f"weir {engine.__version__}: advice for job {name}, a {target} fails each {mtbf}")
        identity = identity_of_job(name, content, (texts, named, mtbf, target), ARGUMENTS)
        with rows_told(console, identity, out) as told:
            advice = advise(
                partial(built, make, named, texts), mtbf=mtbf, target=target, rate=rate, seeds=seeds, jobs=jobs,
                out=out, progress=told, identity=identity, **settings_of_run(texts),
            )  # fmt: skip
    click.echo(json.dumps(advice.report(), indent=2) if as_json else str(advice))
    if plot is not None:
        advice.plot(plot)
        say(console, f"plot: {plot}")
    if out is not None:
        say(console, f"Next: weir report {out}")
    return EXIT_UNKNOWN if advice.study.failed else EXIT_VALID
