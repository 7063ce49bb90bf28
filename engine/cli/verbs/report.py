"""``weir report``: the results file of a sweep as a table and a plot."""

from __future__ import annotations

import json

import click

from engine.cli.text import error_console, say
from engine.cli.verbs.sweep import default_metrics, show_means
from engine.elements.errors import EXIT_UNKNOWN, EXIT_VALID, ConfigurationError

_HELP = """Show the results of a sweep, also of one that was interrupted: means with their 95 % confidence intervals.

\b
Examples:
  weir report results.parquet
  weir report results.parquet --metric end_to_end_p99 --metric makespan
  weir report results.parquet --metric makespan --x checkpoint_interval --by mode --plot makespan.svg
"""


@click.command("report", help=_HELP)
@click.argument("file", metavar="FILE")
@click.option("--metric", "metrics", multiple=True, help="What to show the mean of. Repeatable. [default: the first]")
@click.option("--plot", metavar="FILE", help="Draw the first metric to this file, .svg or .png.")
@click.option("--x", metavar="NAME", help="Argument along the plot. [default: the first that is not the seed]")
@click.option(
    "--by", metavar="NAME", help="Argument with a line of the plot for each value. [default: all others but the seed]"
)
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON on standard output.")
def command(
    file: str, metrics: tuple[str, ...], plot: str | None, x: str | None, by: str | None, as_json: bool
) -> int:
    from engine.study import check_picture, read_study

    if plot is not None:
        check_picture(plot, "--plot")
    elif x is not None or by is not None:
        raise ConfigurationError("--x and --by say how to draw; give the file of the plot, too: --plot FILE")
    table = read_study(file)
    if plot is not None:
        table.plot((metrics or default_metrics(table))[0], x, by=by, to=plot)
    if as_json:
        click.echo(json.dumps(list(table), indent=2))
    else:
        show_means(table, metrics)
    if plot is not None:
        say(error_console(), f"plot: {plot}")
    return EXIT_UNKNOWN if table.failed else EXIT_VALID
