"""Scans of a store and of its snapshots: a memtable in front of the files of a pinned version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from state_backends.lsm.file_set import FileSet, Pin
from state_backends.lsm.memtable import Memtable
from state_backends.lsm.merge import MergeSource, merged


class LsmSnapshot:
    """The content of a store at one moment."""

    def __init__(self, files: FileSet, pin: Pin, memtable: Memtable) -> None:
        self._files = files
        self._pin = pin
        self._memtable = memtable
        self._is_released = False

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        assert not self._is_released, "the snapshot is released"
        return rows(self._files, self._files.pin_again(self._pin), self._memtable, first, end)

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._files.unpin(self._pin)
            self._files.delete_obsolete()


def rows(
    files: FileSet, pin: Pin, memtable: Memtable, first: bytes, end: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a range in a memtable and in pinned files; the pin is given up at their end."""
    columns = memtable.columns_in(first, end)
    sources = [MergeSource(iter([columns] if columns[0] else ()), memtable.ranges)]
    generated = _generate(files, pin, [*sources, *files.sources(pin.view, first, end)])
    # Once it has begun, it gives the pin up however it ends, also when nobody reads it to its end.
    next(generated)
    return generated


def _generate(files: FileSet, pin: Pin, sources: Sequence[MergeSource]) -> Iterator[tuple[bytes, bytes]]:
    try:
        yield (b"", b"")
        for keys, values in merged(sources):
            if all(values):
                # Neither tombstones nor empty values, as a rule: then the pairs pass at full speed.
                yield from zip(keys, cast("list[bytes]", values), strict=True)
                continue
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    yield key, value
    finally:
        files.unpin(pin)
