"""The files of a partition: segments, each named by the offset of its first entry (Kafka: ``LogSegment``).

A segment begins with a preamble that names its kind and version; batches follow. Its index is sparse, exists only in
memory, and is rebuilt from the batches: an index on disk could itself be wrong.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from operators.log.disk.record_batches import SEGMENT_PREAMBLE, BadBatch, RecordBatch, read_batches
from operators.log.port import LogCorruptError
from state_backends.files import FileSystem, RandomAccessFile

INDEX_INTERVAL_BYTES = 1 << 14
_NAME = re.compile(r"(\d{20})\.log")


def segment_name(base_offset: int) -> str:
    """The name of the segment that begins with this offset."""
    return f"{base_offset:020d}.log"


def base_offsets(fs: FileSystem, directory: str) -> list[int]:
    """The base offsets of the segments in a directory, in order; none if it does not exist."""
    if not fs.is_dir(directory):
        return []
    return sorted(int(match[1]) for name in fs.list_dir(directory) if (match := _NAME.fullmatch(name)))


@dataclass(slots=True)
class Segment:
    """One file; ``size_bytes`` includes what is still in memory."""

    base_offset: int
    size_bytes: int
    index: list[tuple[int, int]] = field(default_factory=list)
    """``(first offset of a batch, its position)``, about every ``INDEX_INTERVAL_BYTES``."""

    def note(self, first_offset: int, position: int) -> None:
        """A batch begins at ``position``."""
        if not self.index or position - self.index[-1][1] >= INDEX_INTERVAL_BYTES:
            self.index.append((first_offset, position))

    def place_before(self, offset: int) -> tuple[int, int]:
        """``(first offset, position)`` of a batch at or before ``offset``."""
        at = bisect_right(self.index, (offset, 1 << 62)) - 1
        return self.index[at] if at >= 0 else (self.base_offset, len(SEGMENT_PREAMBLE))

    def path(self, directory: str) -> str:
        """Its path, below the directory of its partition."""
        return posixpath.join(directory, segment_name(self.base_offset))


def has_preamble(file: RandomAccessFile) -> bool:
    """Whether a file begins with the preamble of a segment."""
    return file.read_at(0, len(SEGMENT_PREAMBLE)) == SEGMENT_PREAMBLE


def batches_from(fs: FileSystem, path: str, segment: Segment, offset: int, size_bytes: int) -> Iterator[RecordBatch]:
    """The batches of a segment that end after ``offset``, up to ``size_bytes`` of the file.

    Raises :class:`LogCorruptError` at the first bad batch, because all of this was written whole.
    """
    first_offset, position = segment.place_before(offset)
    with closing(fs.open_random(path)) as file:
        if not has_preamble(file):
            raise LogCorruptError(path, 0, "it does not begin as a segment of this version of the log does")
        for found in read_batches(file, position, size_bytes, first_offset):
            if isinstance(found, BadBatch):
                raise LogCorruptError(path, *found)
            segment.note(found.first_offset, found.position)
            if found.end_offset > offset:
                yield found
