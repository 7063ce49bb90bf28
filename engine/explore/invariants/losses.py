"""Losses that a job itself reports, and the output that a report is about.

A disk may hide or destroy a file that was written in time and still has to be committed. Then no sink can publish its
rows; a sink that reports the loss is honest (:mod:`operators.files.writing.lost_files`). So rows may be missing from
the partition that a report names. No row there may be duplicated or unexpected, and every other partition must be
whole. In return a report must be true: a disk without a fault has lost no file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from engine.explore.run import OUTPUT_DIR, World, directory_in


def is_reported(world: World, partition: str, losses: Iterable[str]) -> bool:
    """Whether one of these reports is about the output in a partition (``uid`` or ``uid/bucket``). A report holds the
    path of a file, or the name of a transaction, which begins with the uid of its sink."""
    uid, _, bucket = partition.partition("/")
    if uid in world.file_outputs:
        place = posixpath.join(world.file_outputs[uid].directory, bucket, "")
    elif uid in world.announcers:
        # The announcement of a table may contain its number of rows.
        place = posixpath.join(directory_in(OUTPUT_DIR, world.announcers[uid].path), "")
    else:
        place = f"'{uid}/"
    return any(place in loss for loss in losses)


def of_files(world: World, losses: Iterable[str]) -> list[str]:
    """The reports that are about files. (A transaction may be lost by its age alone.)"""
    return [loss for loss in losses if any(f"{output.directory}/" in loss for output in world.file_outputs.values())]
