"""What a file sink says of a file that is to be committed and is there by none of its names.

A restore may find a file *pending* and commit it, or *committed* already, by the attempt that died. If it finds
neither, the rows of the file are lost: a sink cannot tell a reader that has moved a finished file away from something
that has deleted a pending one, and does not guess in favour of itself. (Flink's file sink goes on without a word.)

One case is told apart. A job that was started from the snapshot of another run may write to another directory, and what
that run had pending is then none of this directory's business. So it is a loss only if the directory holds the output
of a run: a file that its readers see. Until this run has completed a checkpoint of its own, it has put none there.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from operators.files.formats import is_hidden

if TYPE_CHECKING:
    from engine.elements.operator import OperatorContext

COUNTER = "numCommittedFilesMissing"


def report_lost_files(context: OperatorContext, directory: str, paths: Sequence[str]) -> None:
    """Count ``paths``, files of a sink in ``directory`` that are gone by all their names, and report them as lost."""
    if not paths:
        return
    context.metrics.count(COUNTER, len(paths))
    if context.starts_from_another_run and not _holds_output(context, directory):
        return
    for path in paths:
        context.report_loss(f"sink {context.name!r} was to commit {path}: it is neither pending nor committed")


def _holds_output(context: OperatorContext, directory: str) -> bool:
    prefix = posixpath.join(directory, "")
    return any(
        not any(map(is_hidden, path.removeprefix(prefix).split("/")))
        for path in context.file_system().walk_files(directory)
    )
