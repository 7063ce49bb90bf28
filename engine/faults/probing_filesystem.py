"""File systems that tell when a file is written, made durable, or named.

They stand in front of the disks of a run (of a faulty one, if there is one: what fails there has come by here, and does
not come out of its step):

* :class:`ProbingFileSystem` in front of the storage of checkpoints. Local files of state backends and the small files
  that number incarnations and checkpoints are no steps of a checkpoint.
* :class:`OutputFileSystem` in front of the files of sinks, where each call that changes something is a step. Not those
  of a log: all tasks of a process share the one that has it open, and it does not die with one of them.

Once somebody was struck down in a step, what his code still asks for while it is unwound is not done: a dead process
deletes nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from engine.observe.points import AFTER, BEFORE
from state_backends.files import TEMPORARY_SUFFIX, DirectoryLock, FileSystem, RandomAccessFile, WritableFile
from state_backends.snapshots import CHECKPOINT_PREFIX, METADATA_FILE_NAME, StateScope

if TYPE_CHECKING:
    from engine.runtime.faulted import StruckDown

T = TypeVar("T")

STATE_WRITE, STATE_FSYNC = "snapshot.async.write", "snapshot.async.fsync"
STATE_NAME, STATE_DIR_FSYNC = "snapshot.async.rename", "snapshot.async.dir-fsync"
MANIFEST_WRITE, MANIFEST_RENAME = "manifest.write", "manifest.rename"
SINK_OPEN, SINK_WRITE, SINK_FSYNC, SINK_RENAME = "sink.open", "sink.write", "sink.fsync", "sink.rename"
SINK_DIR_FSYNC, SINK_TRUNCATE, SINK_DELETE = "sink.dir-fsync", "sink.truncate", "sink.delete"


class Prober(Protocol):
    """Who is told; see :class:`engine.faults.injector.FaultInjector`."""

    unwinding: StruckDown | None
    """Who was struck down last."""

    def at_file(self, point: str, phase: str) -> None:
        """Whoever is at work has come to a point."""

    def torn(self, point: str, size_bytes: int) -> int | None:
        """How much of a write is carried out when its writer dies in the middle of it; ``None`` when he does not."""

    def die_torn(self) -> StruckDown:
        """What the writer is struck down with."""


class ProbingFileSystem(FileSystem):
    """Passes every call on, and tells of those that are steps of a checkpoint."""

    def __init__(self, inner: FileSystem, prober: Prober) -> None:
        self.inner = inner
        self._prober = prober

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        kind = _kind(path)
        name = STATE_NAME if kind is _State else None
        file = self._step(name, lambda: self.inner.open_write(path, exclusive=exclusive))
        return file if kind is None else _ProbedFile(self, file, kind)

    def open_append(self, path: str) -> WritableFile:
        return self._pass(lambda: self.inner.open_append(path))

    def open_read(self, path: str) -> BinaryIO:
        return self._pass(lambda: self.inner.open_read(path))

    def open_random(self, path: str) -> RandomAccessFile:
        return self._pass(lambda: self.inner.open_random(path))

    def truncate(self, path: str, size_bytes: int) -> None:
        self._pass(lambda: self.inner.truncate(path, size_bytes))

    def rename(self, source: str, target: str) -> None:
        is_manifest = posixpath.basename(target) == METADATA_FILE_NAME
        self._step(MANIFEST_RENAME if is_manifest else None, lambda: self.inner.rename(source, target))

    def fsync_dir(self, path: str) -> None:
        self._step(STATE_DIR_FSYNC if _holds_state(path) else None, lambda: self.inner.fsync_dir(path))

    def link(self, source: str, target: str) -> None:
        self._pass(lambda: self.inner.link(source, target))

    def list_dir(self, path: str) -> list[str]:
        return self._pass(lambda: self.inner.list_dir(path))

    def delete(self, path: str) -> None:
        self._pass(lambda: self.inner.delete(path))

    def delete_tree(self, path: str) -> None:
        self._pass(lambda: self.inner.delete_tree(path))

    def exists(self, path: str) -> bool:
        return self._pass(lambda: self.inner.exists(path))

    def is_dir(self, path: str) -> bool:
        return self._pass(lambda: self.inner.is_dir(path))

    def real_path(self, path: str) -> str:
        return self.inner.real_path(path)

    def size(self, path: str) -> int:
        return self._pass(lambda: self.inner.size(path))

    def make_dirs(self, path: str) -> None:
        self._pass(lambda: self.inner.make_dirs(path))

    def lock_directory(self, path: str) -> DirectoryLock:
        return self.inner.lock_directory(path)

    def _pass(self, action: Callable[[], T]) -> T:
        struck = self._prober.unwinding
        if struck is not None and not struck.is_over:
            raise struck
        return action()

    def _step(self, point: str | None, action: Callable[[], T]) -> T:
        if point is None:
            return self._pass(action)
        self._pass(_nothing)
        self._prober.at_file(point, BEFORE)
        done = action()
        self._prober.at_file(point, AFTER)
        return done

    def _write(self, point: str, file: WritableFile, data: bytes) -> int:
        self._pass(_nothing)
        prober = self._prober
        prober.at_file(point, BEFORE)
        kept = prober.torn(point, len(data))
        if kept is not None:
            file.write(data[:kept])
            # What is left of a torn write is what a reader finds.
            file.flush()
            raise prober.die_torn()
        written = file.write(data)
        prober.at_file(point, AFTER)
        return written


class OutputFileSystem(ProbingFileSystem):
    """Passes every call on, and tells of those by which sinks change files; but for the directories ``apart``."""

    def __init__(self, inner: FileSystem, prober: Prober, apart: Collection[str] = ()) -> None:
        super().__init__(inner, prober)
        self._apart = tuple(f"{directory.rstrip('/')}/" for directory in apart)

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        point = self._at(SINK_OPEN, path)
        file = self._step(point, lambda: self.inner.open_write(path, exclusive=exclusive))
        return file if point is None else _ProbedFile(self, file, _Output)

    def open_append(self, path: str) -> WritableFile:
        file = self._pass(lambda: self.inner.open_append(path))
        return file if self._at(SINK_WRITE, path) is None else _ProbedFile(self, file, _Output)

    def truncate(self, path: str, size_bytes: int) -> None:
        self._step(self._at(SINK_TRUNCATE, path), lambda: self.inner.truncate(path, size_bytes))

    def rename(self, source: str, target: str) -> None:
        self._step(self._at(SINK_RENAME, target), lambda: self.inner.rename(source, target))

    def fsync_dir(self, path: str) -> None:
        self._step(self._at(SINK_DIR_FSYNC, f"{path}/"), lambda: self.inner.fsync_dir(path))

    def delete(self, path: str) -> None:
        self._step(self._at(SINK_DELETE, path), lambda: self.inner.delete(path))

    def delete_tree(self, path: str) -> None:
        self._step(self._at(SINK_DELETE, f"{path}/"), lambda: self.inner.delete_tree(path))

    def _at(self, point: str, path: str) -> str | None:
        return None if path.startswith(self._apart) else point


class _State:
    """A file of state."""

    write: str = STATE_WRITE
    fsync: str | None = STATE_FSYNC


class _Manifest(_State):
    """``_metadata`` under its temporary name."""

    write = MANIFEST_WRITE
    fsync = None


class _Output(_State):
    """A file of a sink."""

    write = SINK_WRITE
    fsync = SINK_FSYNC


class _ProbedFile(WritableFile):
    def __init__(self, fs: ProbingFileSystem, file: WritableFile, kind: type[_State]) -> None:
        self._fs, self._file, self._kind = fs, file, kind

    def write(self, data: bytes) -> int:
        return self._fs._write(self._kind.write, self._file, data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._fs._pass(self._file.flush)

    def fsync(self) -> None:
        self._fs._step(self._kind.fsync, self._file.fsync)

    def close(self) -> None:
        self._fs._pass(self._file.close)


def _nothing() -> None:
    """Only to be refused when the caller is dead."""


def _kind(path: str) -> type[_State] | None:
    directory, name = posixpath.split(path)
    if name == METADATA_FILE_NAME + TEMPORARY_SUFFIX:
        return _Manifest
    return _State if _holds_state(directory) else None


def _holds_state(directory: str) -> bool:
    name = posixpath.basename(directory)
    return name.startswith(CHECKPOINT_PREFIX) or name in (StateScope.SHARED.value, StateScope.TASK_OWNED.value)
