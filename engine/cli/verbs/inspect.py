"""``weir inspect``: the content of a checkpoint, decoded and verified."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from engine.cli.inspection import Selection, compare, difference_lines, inspect_checkpoint, inspection_lines
from engine.cli.settings import place
from engine.cli.shell import AtLeast
from engine.elements.errors import EXIT_VALID, EXIT_VIOLATED
from engine.runtime.storage import find_checkpoint

_HELP = """Show the state in a checkpoint: per operator, subtask and key group. Every byte is verified first.

An unaligned checkpoint also holds records in flight: they are shown per channel, into and out of each subtask. As
JSON they are always complete.

PATH is a checkpoint's directory (chk-5), its _metadata file, a savepoint, or a storage directory, which stands for
its newest checkpoint. A damaged checkpoint is an error that says which file is damaged and how.

\b
Examples:
  weir inspect state/
  weir inspect state/wordcount/chk-12 --operator count --limit 100
  weir inspect state/ --json > checkpoint.json
  weir inspect state/wordcount/chk-11 --diff state/wordcount/chk-12

With --diff: which entries of keyed state the two do not have in common, whatever state backends and parallelisms wrote
them. The exit code is 1 when there are any.
"""


@click.command("inspect", help=_HELP)
@click.argument("path", metavar="PATH")
@click.option("--operator", "uid", metavar="UID", help="Only the operator with this uid.")
@click.option(
    "--limit",
    type=AtLeast(0),
    default=20,
    show_default=True,
    help="Entries shown of each state of a subtask, and records of each channel.",
)
@click.option("--diff", "other", metavar="PATH", help="Compare the keyed state with that of another checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: str, uid: str | None, limit: int, other: str | None, as_json: bool) -> int:
    found, selection = find_checkpoint(*place(path)), Selection(uid, limit)
    if other is None:
        inspected = inspect_checkpoint(found, selection)
        _print(inspected, inspection_lines(inspected, limit), as_json)
        return EXIT_VALID
    compared = compare(found, find_checkpoint(*place(other)), selection)
    _print(compared, difference_lines(compared), as_json)
    return EXIT_VALID if compared["equal"] else EXIT_VIOLATED


def _print(data: dict[str, Any], lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        for line in lines:
            click.echo(line)
