"""Reports files that a file sink should commit but that do not exist under any of their names.

A restore may find a file *pending* and commit it, or *committed* already by the attempt that died. If it finds neither,
the rows of the file are lost. A sink cannot tell whether a reader moved a finished file away or a pending one was
deleted, so it assumes a loss. (Flink's file sink goes on silently.)

There is one exception. A job started from the snapshot of another run may write to another directory; that run's
pending files do not concern this directory. So it is a loss only if the directory holds the output of a run: a visible
file. Before its first completed checkpoint, this run itself has none there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from operators.files.formats import visible_files

if TYPE_CHECKING:
    from engine.elements.operator import OperatorContext

COUNTER = "numCommittedFilesMissing"


def report_lost_files(context: OperatorContext, directory: str, paths: Sequence[str]) -> None:
    """Count ``paths``, files of a sink in ``directory`` that exist under none of their names, and report the loss."""
    if not paths:
        return
    context.metrics.count(COUNTER, len(paths))
    if context.starts_from_another_run and not any(visible_files(context.file_system(), directory)):
        return
    for path in paths:
        context.report_loss(f"sink {context.name!r} was to commit {path}: it is neither pending nor committed")
