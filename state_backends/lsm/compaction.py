"""Which files to merge, and the version afterwards: pure functions, which touch no file.

*Levelled.* A task takes files from the fullest level. Level 0 is measured by its number of files: all of them are
merged with the files that they overlap in level 1. Other levels are measured by their bytes: the next file after the
level's cursor is merged with the files that it overlaps in the level below. Files that overlap none there move as they
are and keep their names, so no checkpoint uploads them again.

*Universal.* Each file of level 0 and each other level is a sorted run. When there are too many runs, neighbouring runs
are merged: all, if the newer ones take too much space compared with the oldest; else some of similar size; else as many
of the newest as needed. (RocksDB's three rules, in its order.)

During a task, new files may be added to level 0, as the newest. Nothing else changes: a store carries out one task at
a time, and cancels it before it changes other levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from state_backends.lsm.store_options import LsmOptions
from state_backends.lsm.version import FileMeta, Version, VersionEdit, span_of

Run = tuple[FileMeta, ...]
"""Files that are ascending and disjoint."""


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """The runs to merge.

    :ivar runs: the newest first
    :ivar output_level: the level of the result
    :ivar is_bottom: whether no deeper level has older entries in its range, so that tombstones can be dropped
    :ivar is_move: whether the files only change their level
    :ivar cursor: (level, key): where the next compaction of that level continues
    """

    runs: tuple[Run, ...]
    output_level: int
    is_bottom: bool
    is_move: bool = False
    cursor: tuple[int, bytes] | None = None

    @property
    def inputs(self) -> tuple[FileMeta, ...]:
        return tuple(file for run in self.runs for file in run)


def pick(version: Version, options: LsmOptions) -> CompactionTask | None:
    """The most urgent task, if any."""
    if options.compaction == "levelled":
        return _pick_levelled(version, options)
    return _pick_universal(version, options) if options.compaction == "universal" else None


def edit_for(version: Version, task: CompactionTask, outputs: Sequence[FileMeta]) -> VersionEdit:
    """The edit of the present version that completes a task. ``outputs``: the merged files, ascending; for a move, the
    inputs."""
    removed = tuple(file.name for file in task.inputs)
    added = tuple((task.output_level, file) for file in outputs)
    cursors = () if task.cursor is None else (task.cursor,)
    level0 = None
    if task.output_level == 0:
        assert len(outputs) <= 1, "files of level 0 are whole runs"
        level0 = _level0_with(version, frozenset(removed), tuple(file.name for file in outputs))
    return VersionEdit(removed, added, cursors, level0)


def _level0_with(version: Version, removed: frozenset[str], outputs: tuple[str, ...]) -> tuple[str, ...]:
    """The order in level 0 when the outputs take the place of the oldest removed file."""
    names = [file.name for file in version.levels[0]]
    at = max(index for index, name in enumerate(names) if name in removed)
    order = [*names[: at + 1], *outputs, *names[at + 1 :]]
    return tuple(name for name in order if name not in removed)


# --- levelled ---


def _pick_levelled(version: Version, options: LsmOptions) -> CompactionTask | None:
    scores = [len(version.levels[0]) / options.level0_trigger]
    scores += [version.level_size(level) / options.level_bytes(level) for level in range(1, len(version.levels) - 1)]
    level = max(range(len(scores)), key=scores.__getitem__)
    # Level 0 is full when it reaches its trigger, other levels when they exceed their size.
    if scores[level] < 1 or (level and scores[level] == 1):
        return None
    if level == 0:
        upper: tuple[Run, ...] = tuple((file,) for file in version.levels[0])
        cursor = None
    else:
        file = _next_file(version, level)
        upper = ((file,),)
        cursor = (level, file.largest)
    return _task_into(version, upper, level + 1, cursor)


def _next_file(version: Version, level: int) -> FileMeta:
    files = version.levels[level]
    return next((file for file in files if file.largest > version.cursors[level]), files[0])


def _task_into(
    version: Version, upper: tuple[Run, ...], level: int, cursor: tuple[int, bytes] | None
) -> CompactionTask:
    """Merge runs with the files that they overlap in a level."""
    files = sorted((file for run in upper for file in run), key=lambda file: file.smallest)
    span = span_of(files)
    lower = version.overlapping(level, span)
    runs = (*upper, lower) if lower else upper
    is_bottom = version.is_bottom(level, span_of((*files, *lower)))
    return CompactionTask(runs, level, is_bottom, _may_move(files, lower, is_bottom), cursor)


def _may_move(files: Sequence[FileMeta], lower: Run, is_bottom: bool) -> bool:
    """Whether files can go one level down as they are. At the bottom, tombstones are dropped rather than moved."""
    if lower or (is_bottom and any(file.deletes for file in files)):
        return False
    return all(left.limit <= right.smallest for left, right in pairwise(files))


# --- universal ---


def _sorted_runs(version: Version) -> list[tuple[int, Run]]:
    """(level, files) of all runs, the newest first."""
    runs: list[tuple[int, Run]] = [(0, (file,)) for file in version.levels[0]]
    runs += [(level, files) for level, files in enumerate(version.levels) if level and files]
    return runs


def _pick_universal(version: Version, options: LsmOptions) -> CompactionTask | None:
    runs = _sorted_runs(version)
    if len(runs) < options.level0_trigger or len(runs) < 2:
        return None
    sizes = [sum(file.size_bytes for file in files) for _, files in runs]
    if sum(sizes[:-1]) * 100 >= options.max_size_amplification_percent * sizes[-1]:
        return _universal_task(version, runs, 0, len(runs))
    for start in range(len(runs) - 1):
        stop = _like_sized(sizes, start, options.size_ratio_percent)
        if stop - start >= 2:
            return _universal_task(version, runs, start, stop)
    return _universal_task(version, runs, 0, max(2, len(runs) - options.level0_trigger + 1))


def _like_sized(sizes: Sequence[int], start: int, ratio_percent: int) -> int:
    """The end of the runs from ``start`` on of which each is at most ``ratio_percent`` larger than those before it."""
    total = sizes[start]
    for stop in range(start + 1, len(sizes)):
        if sizes[stop] * 100 > total * (100 + ratio_percent):
            return stop
        total += sizes[stop]
    return len(sizes)


def _universal_task(version: Version, runs: Sequence[tuple[int, Run]], start: int, stop: int) -> CompactionTask:
    """Merge neighbouring runs into the deepest level above the next older run."""
    output_level = len(version.levels) - 1 if stop == len(runs) else max(0, runs[stop][0] - 1)
    assert output_level >= runs[stop - 1][0], (output_level, runs[stop - 1][0])
    chosen = tuple(files for _, files in runs[start:stop])
    return CompactionTask(chosen, output_level, is_bottom=stop == len(runs))


# --- everything ---


def whole(version: Version, options: LsmOptions) -> CompactionTask | None:
    """Merge all files into one run; ``None`` when there are none."""
    runs = tuple(files for _, files in _sorted_runs(version))
    if not runs:
        return None
    level = len(version.levels) - 1
    if options.compaction == "levelled":
        size = sum(file.size_bytes for file in version.files())
        fitting = (one for one in range(1, level) if options.level_bytes(one) >= size)
        level = max(next(fitting, level), version.deepest())
    return CompactionTask(runs, level, is_bottom=True)
