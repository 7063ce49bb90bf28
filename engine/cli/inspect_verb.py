"""``weir inspect``: what a checkpoint holds, decoded and verified."""

from __future__ import annotations

import json

import click

from engine.cli.inspection import Selection, find_checkpoint, inspect_checkpoint
from engine.cli.inspection_text import inspection_lines
from engine.cli.places import place

_HELP = """Show the state in a checkpoint: per operator, subtask and key group. Every byte is verified first.

PATH is a checkpoint's directory (chk-5), its _metadata file, a savepoint, or a storage directory, which stands for
its newest checkpoint. A damaged checkpoint is an error that says which file is damaged and how.

\b
Examples:
  weir inspect state/
  weir inspect state/wordcount/chk-12 --operator count --limit 100
  weir inspect state/ --json > checkpoint.json
"""


@click.command("inspect", help=_HELP)
@click.argument("path", metavar="PATH")
@click.option("--operator", "uid", metavar="UID", help="Only the operator with this uid.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Entries shown of each state of a subtask.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: str, uid: str | None, limit: int, as_json: bool) -> int:
    """See the help text."""
    found = find_checkpoint(*place(path))
    inspected = inspect_checkpoint(found, Selection(uid, limit))
    if as_json:
        click.echo(json.dumps(inspected, indent=2, ensure_ascii=False))
    else:
        for line in inspection_lines(inspected):
            click.echo(line)
    return 0
