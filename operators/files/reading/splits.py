"""Splits of files: their ranges, how a file is cut, their ids, and the positions in them.

Rules (Flink: ``FileSourceSplit``, ``CheckpointedPosition``, ``BlockSplittingRecursiveEnumerator``)
---------------------------------------------------------------------------------------------------
* A split is a range of a file's bytes, read from the position that it carries, or from its beginning.
* A splittable file is cut at its blocks if these tile it exactly; otherwise it is one split.
* A record belongs to the split in whose range ``(start, end]`` it starts; the first split of a file has byte 0 too. The
  last split of a file has no end: it is read up to the end of the file at the time when the reader gets there.
* A position is ``(offset, records after it)`` and counts the record itself: of a batch that begins at ``(o, s)``, the
  record ``i`` (from 0) has ``(o, s + i + 1)``. ``NO_OFFSET`` means that only the split's beginning is known.

The id of a split contains its range, so the id is enough to read it: ``path``, ``path@offset+length``, or
``path@offset+`` for the last one of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple

from engine.elements.errors import StateError
from engine.elements.source import SourceContext

NO_OFFSET = -1
"""The offset of a position with only a known number of records."""

_RANGE = re.compile(r"(.*)@(\d+)\+(\d*)", re.DOTALL)


class CheckpointedPosition(NamedTuple):
    """Where to resume: ``records_after_offset`` records after byte ``offset``, or after the beginning of the split."""

    offset: int
    records_after_offset: int


class FileStatus(NamedTuple):
    """A file as a listing found it. ``blocks``: offset and length of each, empty if unknown."""

    path: str
    length: int
    blocks: tuple[tuple[int, int], ...] = ()


class FileSourceSplit(NamedTuple):
    """A range of a file. ``position``: where to resume in it, ``None`` at its beginning."""

    id: str
    path: str
    offset: int
    length: int
    position: Any = None


class SplitRange(NamedTuple):
    """The contents of a split's id. ``end`` is ``None`` for the last split of a file."""

    path: str
    start: int
    end: int | None


class FileSplitReader:
    """The common part of readers of a split of ``file``: a file has all its records already."""

    def __init__(self, file: BinaryIO, split: SplitRange, context: SourceContext) -> None:
        self._file, self._split, self._path, self._context = file, split, split.path, context

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns

    def close(self) -> None:
        self._file.close()

    def _changed(self, what: str) -> StateError:
        return StateError(
            f"file {self._path!r} of source {self._context.name!r} has changed since the checkpoint: {what}\n"
            "  put the old file back, or start without the checkpoint"
        )


def split_id(path: str, start: int, end: int | None) -> str:
    """The id of a range of a file."""
    if start == 0 and end is None and _RANGE.fullmatch(path) is None:
        return path
    return f"{path}@{start}+{'' if end is None else end - start}"


def split_range(split: str) -> SplitRange:
    """The range of the split with this id; the inverse of :func:`split_id`."""
    match = _RANGE.fullmatch(split)
    if match is None:
        return SplitRange(split, 0, None)
    start = int(match[2])
    return SplitRange(match[1], start, start + int(match[3]) if match[3] else None)


def regular_blocks(length: int, block_bytes: int) -> tuple[tuple[int, int], ...]:
    """A file of ``length`` bytes as blocks of equal size, except the last."""
    return tuple((start, min(block_bytes, length - start)) for start in range(0, length, block_bytes))


def tile(blocks: Iterable[tuple[int, int]], length: int) -> bool:
    """Whether blocks, in order, cover a file of ``length`` bytes without gap or overlap."""
    reached = 0
    for start, size in blocks:
        if start != reached or size < 1:
            return False
        reached += size
    return reached == length


def splits_of(file: FileStatus, *, splittable: bool) -> list[FileSourceSplit]:
    """The splits of one file."""
    blocks = sorted(file.blocks)
    if not splittable or len(blocks) < 2 or not tile(blocks, file.length):
        return [FileSourceSplit(split_id(file.path, 0, None), file.path, 0, file.length)]
    starts = [start for start, _ in blocks]
    ends: Sequence[int | None] = [*starts[1:], None]
    return [
        FileSourceSplit(split_id(file.path, start, end), file.path, start, length)
        for (start, length), end in zip(blocks, ends, strict=True)
    ]


def record_positions(offset: int, records_before: int, count: int) -> list[CheckpointedPosition]:
    """The positions of the ``count`` records of a batch that begins ``records_before`` records after ``offset``."""
    return [position_behind(offset, records_before, index) for index in range(count)]


def position_behind(offset: int, records_before: int, index: int) -> CheckpointedPosition:
    """The position of record ``index`` of such a batch: where to resume once it has been emitted."""
    return CheckpointedPosition(offset, records_before + index + 1)
