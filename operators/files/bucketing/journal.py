"""Stores which parts of a bucketing sink were opened after which checkpoint, so that a job can go back.

A job may start from an older checkpoint than its newest, because the newest is unreadable or by the user's choice. It
then writes rows again that newer checkpoints had finished; in Flink they appear twice. Here each subtask keeps a
journal, a hidden file beside the buckets, and uses it to take those rows back:

* Before the state of checkpoint ``n`` is written, the parts opened since the checkpoint before are noted under ``n``,
  durably. So every finished part is in the journal.
* A restore from ``n`` hides the finished parts that are noted under a later checkpoint, and then strikes them out.
  Their names may be used again, and their valid lengths are deleted.
* A job that starts without state strikes out everything: the files it finds belong to another run, and stay.

After a change of parallelism, a journal belongs to the subtask with its number modulo the parallelism.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable

from engine.elements.errors import StorageError
from operators.files.bucketing.names import BucketingNames
from operators.files.writing import path_inside
from state_backends.base import CorruptStateError, check_shape, number, row, text
from state_backends.files import FileSystem, write_atomically

Entry = tuple[int, str, str]
"""Checkpoint, bucket and part."""

_ENTRY = row(number, text, text)


class PartJournal:
    """The journals of one sink, as one subtask sees them. ``name`` distinguishes the sink from others in its directory,
    ``attempt`` its hidden files from those of other attempts."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        name: str,
        names: BucketingNames,
        *,
        subtask: int,
        parallelism: int,
        attempt: str,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._prefix = f".{name}.parts-"
        self._names = names
        self._subtask = subtask
        self._parallelism = parallelism
        self._attempt = attempt

    def note(self, checkpoint_id: int, parts: Iterable[tuple[str, str]]) -> None:
        """Note parts (bucket and final name) that were opened since the snapshot before that of ``checkpoint_id``."""
        lines = [_line((checkpoint_id, bucket, part)) for bucket, part in parts]
        if not lines:
            return
        path = self._path(f"{self._prefix}{self._subtask}")
        is_new = not self._fs.exists(path)
        with self._fs.open_append(path) as file:
            file.write("".join(lines).encode())
            file.fsync()
        if is_new:
            self._fs.fsync_dir(self._directory)

    def go_back(self, checkpoint_id: int | None) -> int:
        """The job starts from this checkpoint, or without state. Returns how many parts were taken back."""
        taken_back = 0
        for journal in self._mine():
            known, is_whole = self._read(journal)
            kept = [] if checkpoint_id is None else [entry for entry in known if entry[0] <= checkpoint_id]
            if checkpoint_id is not None and len(kept) < len(known):
                taken_back += self._hide(entry for entry in known if entry[0] > checkpoint_id)
            if not kept:
                self._fs.delete(journal)
            elif len(kept) < len(known) or not is_whole:
                write_atomically(self._fs, journal, "".join(map(_line, kept)).encode())
        return taken_back

    def _mine(self) -> list[str]:
        if not self._fs.is_dir(self._directory):
            return []
        return [
            self._path(name)
            for name in self._fs.list_dir(self._directory)
            if (number := name.removeprefix(self._prefix)) != name
            and number.isdecimal()
            and int(number) % self._parallelism == self._subtask
        ]

    def _read(self, journal: str) -> tuple[list[Entry], bool]:
        """The entries, and whether the file has no other content. Half a line at the end is ignored.

        Raises :class:`StorageError` when a line is damaged.
        """
        *lines, rest = self._fs.read_bytes(journal).split(b"\n")
        entries = []
        for at, line in enumerate(lines, start=1):
            try:
                entries.append(_entry(line))
            except ValueError as error:
                raise StorageError(
                    f"{journal}:{at} says which parts this sink has finished, but is damaged: {error}\n"
                    "  fix: put the file back from a copy; or delete it, and see which parts of it belong to the output"
                ) from error
        for whole in (rest, rest[:-1]):
            # A line that lacks only its line end, or has a damaged one, counts.
            with contextlib.suppress(ValueError):
                entries.append(_entry(whole))
                break
        return entries, not rest

    def _hide(self, entries: Iterable[Entry]) -> int:
        hidden, changed = 0, dict[str, None]()
        for _, bucket, part in entries:
            path, marker = self._path(bucket, part), self._path(bucket, self._names.valid_length(part))
            if self._fs.exists(path):
                self._fs.rename(path, self._path(bucket, f".{part}.retracted.{self._attempt}"))
                hidden += 1
                changed[bucket] = None
            if self._fs.exists(marker):
                self._fs.delete(marker)
                changed[bucket] = None
        for bucket in sorted(changed):
            self._fs.fsync_dir(self._path(bucket))
        return hidden

    def _path(self, *parts: str) -> str:
        return path_inside(self._directory, *parts)


def _line(entry: Entry) -> str:
    """An entry and its crc, as JSON."""
    plain = json.dumps(entry)
    return f"{plain[:-1]}, {zlib.crc32(plain.encode())}]\n"


def _entry(line: bytes) -> Entry:
    """Raises :class:`ValueError` unless :func:`_line` wrote it, or an older version, which writes no crc."""
    written = line.decode()
    try:
        checkpoint_id, bucket, part, *crc = json.loads(written)
    except TypeError as error:
        raise ValueError("it is no list") from error
    entry = checkpoint_id, bucket, part
    if written + "\n" != (_line(entry) if crc else json.dumps(entry) + "\n"):
        raise ValueError("its checksum does not match")
    try:
        check_shape(entry, _ENTRY, "the line", "it")
    except CorruptStateError as error:
        raise ValueError(error.what) from error
    return entry
