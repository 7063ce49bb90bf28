"""The files of a store: an immutable list of files per level, and the edits that lead from one version to the next.

Level 0 holds flushed memtables, newest first; they may overlap. In every level from 1 on the files are ascending and
disjoint. A smaller level is newer than a larger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from state_backends.base import below, binary, flag, list_of, optional, row, text, whole


@dataclass(frozen=True, slots=True)
class FileMeta:
    """A file of entries, as the manifest describes it.

    :ivar name: ``<number>-<unique>.sst``; never used twice
    :ivar size_bytes: the size of the file
    :ivar checksum: the crc of its footer; the footer has checksums for the rest
    :ivar entries: the number of entries, tombstones included
    :ivar tombstones: the number of entries that say that their key is deleted
    :ivar range_tombstones: the number of ranges that the file deletes
    :ivar smallest: the first key that it says anything about
    :ivar largest: the last one...
    :ivar largest_excluded: ...or, when it is the end of a range, the key after the last one
    """

    name: str
    size_bytes: int
    checksum: int
    entries: int
    tombstones: int
    range_tombstones: int
    smallest: bytes
    largest: bytes
    largest_excluded: bool = False

    @property
    def number(self) -> int:
        """The counter in its name."""
        return file_number(self.name)

    @property
    def limit(self) -> bytes:
        """The key after the last one that it says anything about."""
        return self.largest if self.largest_excluded else self.largest + b"\0"

    @property
    def deletes(self) -> bool:
        return bool(self.tombstones or self.range_tombstones)

    def overlaps(self, first: bytes, limit: bytes | None) -> bool:
        """Whether it says anything about keys in ``first <= key < limit``."""
        return first < self.limit and (limit is None or self.smallest < limit)

    def to_state(self) -> list[Any]:
        return [
            self.name, self.size_bytes, self.checksum, self.entries, self.tombstones, self.range_tombstones,
            self.smallest, self.largest, self.largest_excluded,
        ]  # fmt: skip


def file_number(name: str) -> int:
    """The counter in a file's name; :class:`ValueError` when the name has none."""
    return int(name.removeprefix("MANIFEST-").partition("-")[0])


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file in the directory of the store."""
    return "/" not in name and name not in ("", ".", "..")


class Span(NamedTuple):
    """A half-open range of keys."""

    first: bytes
    limit: bytes


def span_of(files: Iterable[FileMeta]) -> Span:
    """The keys from the first to the last that any of the files, at least one, says anything about."""
    listed = list(files)
    return Span(min(file.smallest for file in listed), max(file.limit for file in listed))


_FILE = row(text, whole, whole, whole, whole, whole, binary, binary, flag)
_LEVEL = below(64)
EDIT = row(list_of(text), list_of(row(_LEVEL, _FILE)), list_of(row(_LEVEL, binary)), optional(list_of(text)))
"""The shape of the plain form of a :class:`VersionEdit`."""


@dataclass(frozen=True, slots=True)
class VersionEdit:
    """A change of a version.

    :ivar removed: names of the files to remove
    :ivar added: (level, file); in level 0 from older to newer, all newer than the files that are there
    :ivar cursors: (level, key): where the next compaction of that level continues
    :ivar level0: the names of all files of level 0 in their new order, when files were put between others
    """

    removed: tuple[str, ...] = ()
    added: tuple[tuple[int, FileMeta], ...] = ()
    cursors: tuple[tuple[int, bytes], ...] = ()
    level0: tuple[str, ...] | None = None

    def to_state(self) -> list[Any]:
        return [
            list(self.removed),
            [[level, file.to_state()] for level, file in self.added],
            [list(cursor) for cursor in self.cursors],
            None if self.level0 is None else list(self.level0),
        ]

    @classmethod
    def from_state(cls, state: list[Any]) -> VersionEdit:
        removed, added, cursors, level0 = state
        return cls(
            tuple(removed),
            tuple((level, FileMeta(*fields)) for level, fields in added),
            tuple((level, key) for level, key in cursors),
            None if level0 is None else tuple(level0),
        )


@dataclass(frozen=True, slots=True)
class Version:
    """All files of a store at one moment.

    :ivar levels: the files of each level
    :ivar cursors: per level, the last key that a compaction of one of its files covered: the next compaction begins
        after it, so that each file of the level is chosen in turn
    """

    levels: tuple[tuple[FileMeta, ...], ...]
    cursors: tuple[bytes, ...]

    @classmethod
    def empty(cls, max_levels: int) -> Version:
        return cls(((),) * max_levels, (b"",) * max_levels)

    def files(self) -> Iterator[FileMeta]:
        for level in self.levels:
            yield from level

    def level_of(self) -> dict[str, int]:
        return {file.name: level for level, files in enumerate(self.levels) for file in files}

    def level_size(self, level: int) -> int:
        return sum(file.size_bytes for file in self.levels[level])

    def overlapping(self, level: int, span: Span) -> tuple[FileMeta, ...]:
        """The files of a level that say anything about keys in a span."""
        return tuple(file for file in self.levels[level] if file.overlaps(span.first, span.limit))

    def is_bottom(self, level: int, span: Span) -> bool:
        """Whether no deeper level says anything about keys in a span."""
        return not any(self.overlapping(deeper, span) for deeper in range(level + 1, len(self.levels)))

    def deepest(self) -> int:
        return max((level for level, files in enumerate(self.levels) if files), default=0)

    def with_depth(self, max_levels: int) -> Version:
        more = max_levels - len(self.levels)
        return self if more <= 0 else Version(self.levels + ((),) * more, self.cursors + (b"",) * more)

    def applied(self, edit: VersionEdit) -> Version:
        """The version after an edit.

        :raises ValueError: when the edit does not fit this version
        """
        removed = frozenset(edit.removed)
        missing = removed - self.level_of().keys()
        if missing:
            raise ValueError(f"removes {', '.join(sorted(missing))}, which is not there")
        for _, file in edit.added:
            if not is_plain_name(file.name):
                raise ValueError(f"{file.name!r} is no name of a file")
            file_number(file.name)
        deepest = max((level for level, _ in (*edit.added, *edit.cursors)), default=0)
        base = self.with_depth(deepest + 1)
        levels = [[file for file in files if file.name not in removed] for files in base.levels]
        for level, file in edit.added:
            if level:
                levels[level].append(file)
            else:
                levels[0].insert(0, file)
        if edit.level0 is not None:
            levels[0] = _reordered(levels[0], edit.level0)
        for level in range(1, len(levels)):
            levels[level].sort(key=attrgetter("smallest"))
        cursors = list(base.cursors)
        for level, key in edit.cursors:
            cursors[level] = key
        after = replace(base, levels=tuple(map(tuple, levels)), cursors=tuple(cursors))
        problem = after.problem()
        if problem is not None:
            raise ValueError(problem)
        return after

    def as_edit(self) -> VersionEdit:
        """The edit that makes this version from an empty one."""
        added = [(0, file) for file in reversed(self.levels[0])]
        added += [(level, file) for level, files in enumerate(self.levels) if level for file in files]
        cursors = [(level, key) for level, key in enumerate(self.cursors) if key]
        return VersionEdit(added=tuple(added), cursors=tuple(cursors))

    def problem(self) -> str | None:
        """What is wrong with it, or ``None``."""
        names = [file.name for file in self.files()]
        if len(frozenset(names)) < len(names):
            return "a file is listed twice"
        for file in self.files():
            if not file.smallest < file.limit:
                return f"{file.name} ends before it begins"
        for level in range(1, len(self.levels)):
            for left, right in pairwise(self.levels[level]):
                if left.limit > right.smallest:
                    return f"{left.name} and {right.name} of level {level} overlap"
        return None

    def validate(self) -> None:
        problem = self.problem()
        assert problem is None, problem
        assert len(self.levels) == len(self.cursors), self.cursors


def _reordered(files: list[FileMeta], names: tuple[str, ...]) -> list[FileMeta]:
    by_name = {file.name: file for file in files}
    if sorted(by_name) != sorted(names):
        raise ValueError("orders other files in level 0 than there are")
    return [by_name[name] for name in names]
