"""File systems that report when a file is written, made durable, or named.

They stand in front of the disks of a run, also of a faulty disk: a call that fails there enters its step, and does not
complete it.

* :class:`ProbingFileSystem` in front of the storage of checkpoints. Local files of state backends and the small files
  that number incarnations and checkpoints are not steps of a checkpoint.
* :class:`OutputFileSystem` in front of the files of sinks, where each call that changes something is a step. Files of a
  log are exempt: all tasks of a process share the open log, and it does not die with one of them.

Once an actor was struck down in a step, further calls during its unwinding are not carried out: a dead process
deletes nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Protocol

from engine.observe.points import AFTER, BEFORE
from engine.runtime.faulted import StruckDown
from state_backends.files import TEMPORARY_SUFFIX, DirectoryLock, FileSystem, WrappedFileSystem, WritableFile
from state_backends.snapshots import CHECKPOINT_PREFIX, METADATA_FILE_NAME, StateScope

STATE_WRITE, STATE_FSYNC = "snapshot.async.write", "snapshot.async.fsync"
STATE_NAME, STATE_DIR_FSYNC = "snapshot.async.rename", "snapshot.async.dir-fsync"
MANIFEST_WRITE, MANIFEST_RENAME = "manifest.write", "manifest.rename"
SINK_OPEN, SINK_WRITE, SINK_FSYNC, SINK_RENAME = "sink.open", "sink.write", "sink.fsync", "sink.rename"
SINK_DIR_FSYNC, SINK_TRUNCATE, SINK_DELETE = "sink.dir-fsync", "sink.truncate", "sink.delete"


class Prober(Protocol):
    """The receiver of reports; see :class:`engine.faults.injector.FaultInjector`."""

    unwinding: StruckDown | None
    """The actor that was struck down last."""

    def at_file(self, point: str, phase: str) -> None:
        """The acting task or job manager has reached a point."""

    def torn(self, point: str, size_bytes: int) -> int | None:
        """How much of a write is carried out when its writer dies during it; ``None`` when it survives."""

    def die_torn(self) -> StruckDown:
        """The exception that strikes the writer down."""


def _only_read(operation: str) -> Any:
    """The call of that name, which is no step. Most calls are such ones."""

    def call(self: ProbingFileSystem, *arguments: Any, **options: Any) -> Any:
        struck = self._prober.unwinding
        if struck is not None and not struck.is_over:
            raise struck
        return getattr(self.inner, operation)(*arguments, **options)

    return call


class ProbingFileSystem(WrappedFileSystem):
    """Passes every call on, and reports those that are steps of a checkpoint."""

    open_read = _only_read("open_read")
    open_random = _only_read("open_random")
    list_dir = _only_read("list_dir")
    exists = _only_read("exists")
    is_dir = _only_read("is_dir")
    size = _only_read("size")

    def __init__(self, inner: FileSystem, prober: Prober) -> None:
        super().__init__(inner)
        self._prober = prober

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        file = super().open_write(path, exclusive=exclusive)
        kind = _kind(path)
        return file if kind is None else _ProbedFile(self, file, kind)

    def lock_directory(self, path: str) -> DirectoryLock:
        return self.inner.lock_directory(path)

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        point = self._point(operation, *arguments)
        self._pass()
        if point is None:
            return getattr(self.inner, operation)(*arguments, **options)
        self._prober.at_file(point, BEFORE)
        done = getattr(self.inner, operation)(*arguments, **options)
        self._prober.at_file(point, AFTER)
        return done

    def _point(self, operation: str, path: str, *more: Any) -> str | None:
        """The step of a checkpoint that a call is, if it is one."""
        if operation == "open_write":
            return STATE_NAME if _kind(path) is _State else None
        if operation == "rename":
            return MANIFEST_RENAME if posixpath.basename(more[0]) == METADATA_FILE_NAME else None
        return STATE_DIR_FSYNC if operation == "fsync_dir" and _holds_state(path) else None

    def _pass(self) -> None:
        """Refuse the caller if it is dead."""
        struck = self._prober.unwinding
        if struck is not None and not struck.is_over:
            raise struck

    def _sync(self, point: str | None, file: WritableFile) -> None:
        self._pass()
        if point is None:
            file.fsync()
            return
        self._prober.at_file(point, BEFORE)
        file.fsync()
        self._prober.at_file(point, AFTER)

    def _write(self, point: str, file: WritableFile, data: bytes) -> int:
        self._pass()
        prober = self._prober
        prober.at_file(point, BEFORE)
        kept = prober.torn(point, len(data))
        if kept is not None:
            file.write(data[:kept])
            # A reader finds the bytes that a torn write has left.
            file.flush()
            raise prober.die_torn()
        written = file.write(data)
        prober.at_file(point, AFTER)
        return written


class OutputFileSystem(ProbingFileSystem):
    """Passes every call on, and reports those by which sinks change files, except in the directories ``apart``."""

    def __init__(self, inner: FileSystem, prober: Prober, apart: Collection[str] = ()) -> None:
        super().__init__(inner, prober)
        self._apart = tuple(f"{directory.rstrip('/')}/" for directory in apart)

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        file = super(ProbingFileSystem, self).open_write(path, exclusive=exclusive)
        return file if self._is_apart(path) else _ProbedFile(self, file, _Output)

    def open_append(self, path: str) -> WritableFile:
        file = super().open_append(path)
        return file if self._is_apart(path) else _ProbedFile(self, file, _Output)

    def _point(self, operation: str, path: str, *more: Any) -> str | None:
        place = more[0] if operation == "rename" else f"{path}/" if operation in _OF_DIRECTORIES else path
        return None if self._is_apart(place) else _SINK_STEPS.get(operation)

    def _is_apart(self, path: str) -> bool:
        return path.startswith(self._apart)


_SINK_STEPS = {
    "open_write": SINK_OPEN,
    "truncate": SINK_TRUNCATE,
    "rename": SINK_RENAME,
    "fsync_dir": SINK_DIR_FSYNC,
    "delete": SINK_DELETE,
    "delete_tree": SINK_DELETE,
}
_OF_DIRECTORIES = ("fsync_dir", "delete_tree")


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
        self._fs._pass()
        self._file.flush()

    def fsync(self) -> None:
        self._fs._sync(self._kind.fsync, self._file)

    def close(self) -> None:
        self._fs._pass()
        self._file.close()


@lru_cache(4096)  # The cases of a search have the same few paths.
def _kind(path: str) -> type[_State] | None:
    directory, name = posixpath.split(path)
    if name == METADATA_FILE_NAME + TEMPORARY_SUFFIX:
        return _Manifest
    return _State if _holds_state(directory) else None


@lru_cache(4096)
def _holds_state(directory: str) -> bool:
    name = posixpath.basename(directory)
    return name.startswith(CHECKPOINT_PREFIX) or name in (StateScope.SHARED.value, StateScope.TASK_OWNED.value)
