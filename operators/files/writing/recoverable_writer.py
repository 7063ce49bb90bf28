"""Files that become visible all at once, and only by a commit (Flink: ``RecoverableWriter``).

A file is written under a hidden name, closed and fsynced, and renamed when it is committed. A plain value in the state
is enough to commit it, or to continue it after a crash. All access goes through the file-system port, and the order of
calls is the protocol:

    open hidden name -> write -> fsync file -> fsync directory -> the snapshot holds the file
    the checkpoint is complete -> rename -> fsync directory

The first directory fsync belongs to the snapshot: a checkpoint must not refer to a name that a crash can
lose. Directories are fsynced together, by :meth:`RecoverableWriter.sync_directories`.

Rules:

* The hidden name is ``.{name}.inprogress.{unique}`` beside the target: two attempts at one target never share a file
  before a commit.
* *Persist* makes everything written so far durable and gives a resume handle; writing goes on. *Close for commit* gives
  a commit handle with the final length; writing afterwards is an error.
* *Commit* is strict: the hidden file must exist with exactly the length of the handle.
* *Commit after recovery* is lenient, because the progress of the failed attempt is unknown. It cuts a longer file. A
  missing file with a visible target is committed already; with neither file, it was committed and later removed. A
  shorter file is an error on local file systems; Hadoop's writer commits it (``commits_short_files``).
* *Recover* needs the hidden file with at least the length of the handle, cuts it there and appends. A file that was
  committed meanwhile cannot be recovered.
* A writer may be unable to resume, and may need outdated resume handles to be deleted (as object stores do).

Sources: ``RecoverableWriter``, ``LocalRecoverableWriter``, ``HadoopRecoverableWriter`` and their tests.

A checkpoint may come from anywhere; its checksums prove that it is whole, not that it is honest. Code that commits,
moves, cuts or deletes a file that state names therefore makes its path with :func:`path_inside` or
:func:`hidden_inside` (:mod:`state_backends.snapshots.file_places` does the same for the files of checkpoints).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from engine.elements.errors import StateError, StorageError
from state_backends.files import FileSystem, WritableFile

IN_PROGRESS = ".inprogress."
"""Between the name of the target and the unique end of a hidden name."""

_COPY_BYTES = 1 << 20


def path_inside(directory: str, *parts: str) -> str:
    """The path of a file in ``directory``; empty parts are left out.

    Raises :class:`engine.elements.errors.StateError` when a part is absolute, contains ``..``, or is not a name.
    """
    for part in parts:
        if part[:1] == "/" or "\0" in part or (".." in part and ".." in part.split("/")):
            raise leads_out(part, f"leads out of {directory}")
    return posixpath.join(directory, *filter(None, parts))


def hidden_inside(directory: str, relative: str) -> str:
    """The same for a file that readers do not see. So no state can make the sink delete or cut visible files."""
    if not posixpath.basename(relative).startswith("."):
        raise leads_out(relative, f"is no hidden file of a sink in {directory}")
    return path_inside(directory, relative)


def leads_out(path: str, why: str) -> StateError:
    """The error for a file that state names but must not reach."""
    return StateError(
        f"{path!r}, as the restored state says, {why}. Nothing was done to it\n"
        "  fix: do not use this checkpoint: it was changed, or not written by Weir"
    )


class PendingFile(NamedTuple):
    """A closed file waiting to be committed; paths are relative to the sink's directory."""

    temporary: str
    target: str
    size_bytes: int


class ResumeHandle(NamedTuple):
    """A file that is being written, as it was when it was persisted; paths are relative to the sink's directory."""

    temporary: str
    target: str
    size_bytes: int

    def as_pending(self) -> PendingFile:
        """The file with the length that was persisted, to be committed instead of resumed."""
        return PendingFile(*self)


class RecoverableStream:
    """A file being written under its hidden name."""

    __slots__ = ("_file", "_path", "_sync", "size_bytes", "target", "temporary")

    def __init__(
        self, file: WritableFile, path: str, temporary: str, target: str, size_bytes: int = 0, *, sync: bool = True
    ) -> None:
        self._file: WritableFile | None = file
        self._sync = sync
        self._path = path
        self.temporary = temporary
        self.target = target
        self.size_bytes = size_bytes

    def write(self, data: bytes) -> None:
        """Append ``data``. Raises ``StorageError`` once it was closed."""
        self._opened().write(data)
        self.size_bytes += len(data)

    def persist(self) -> ResumeHandle:
        """Make everything written so far durable; returns a handle to resume from here."""
        file = self._opened()
        (file.fsync if self._sync else file.flush)()
        return ResumeHandle(self.temporary, self.target, self.size_bytes)

    def close_for_commit(self) -> PendingFile:
        """Make the content durable and close; later writes are errors."""
        file = self._opened()
        (file.fsync if self._sync else file.flush)()
        self.close()
        return PendingFile(self.temporary, self.target, self.size_bytes)

    def close(self) -> None:
        """Close without any promise; the hidden file stays. A second call has no effect."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> WritableFile:
        if self._file is None:
            raise StorageError(f"{self._path} is closed and cannot be written any more")
        return self._file


class RecoverableWriter:
    """Opens, resumes and commits files below one directory.

    ``unique``               gives the ends of hidden names, a new one with each call;
    ``replaces``             a committed file replaces an existing file with its name; otherwise that is an error;
    ``resumes``              whether a file can be continued after a crash; otherwise it is committed as it was;
    ``commits_short_files``  see the rules;
    ``sync``                 whether content is on the disk before a checkpoint relies on it. Without ``sync``, names
                             are still durable; but a power cut may cut off a committed file's end, undetected.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        unique: Callable[[], str],
        *,
        replaces: bool = False,
        resumes: bool = True,
        commits_short_files: bool = False,
        sync: bool = True,
    ) -> None:
        self.fs = fs
        self._directory = directory
        self._unique = unique
        self._replaces = replaces
        self._resumes = resumes
        self._commits_short_files = commits_short_files
        self._sync = sync
        self._changed: dict[str, None] = {}

    # --- abilities --------------------------------------------------------------------------------------

    def supports_resume(self) -> bool:
        """Whether :meth:`recover` may be called."""
        return self._resumes

    def requires_cleanup(self) -> bool:
        """Whether outdated resume handles refer to data that must be deleted. Here: no."""
        return False

    def clean_up(self, handle: ResumeHandle) -> bool:
        """Delete the data of an outdated resume handle; returns whether there was any."""
        return False

    # --- paths --------------------------------------------------------------------------------------------

    def path(self, *relative: str) -> str:
        """The path of a file or bucket of the sink. Raises ``StateError`` when it would lead out of the directory."""
        return path_inside(self._directory, *relative)

    def exists(self, relative: str) -> bool:
        """Whether the file exists."""
        return self.fs.exists(self.path(relative))

    def size(self, relative: str) -> int:
        """The size of a file, in bytes."""
        return self.fs.size(self.path(relative))

    def names_in(self, bucket_id: str) -> list[str]:
        """The names in a bucket, sorted."""
        return self.fs.list_dir(self.path(bucket_id)) if self.exists(bucket_id) else []

    def files(self) -> list[str]:
        """All files below the directory, sorted by path, relative to it."""
        prefix = self._directory.rstrip("/") + "/"
        return sorted(path.removeprefix(prefix) for path in self.fs.walk_files(self._directory))

    # --- writing ------------------------------------------------------------------------------------------

    def open(self, target: str) -> RecoverableStream:
        """Begin the file that will be ``target``.

        Raises ``StorageError`` when that name is taken, unless files are replaced.
        """
        if not self._replaces and self.exists(target):
            raise name_taken(self.path(target))
        bucket, name = posixpath.split(target)
        temporary = posixpath.join(bucket, f".{name}{IN_PROGRESS}{self._unique()}")
        self.fs.make_dirs(self.path(bucket))
        return self.begin(temporary, target)

    def begin(self, temporary: str, target: str, *, exclusive: bool = False) -> RecoverableStream:
        """The same under a hidden name that the caller chooses. ``exclusive``: it is an error if the file exists."""
        path = self.path(temporary)
        file = self.fs.open_write(path, exclusive=exclusive)
        self._changed[posixpath.dirname(temporary)] = None
        return RecoverableStream(file, path, temporary, target, sync=self._sync)

    def open_copy(self, source: str, handle: ResumeHandle) -> RecoverableStream:
        """Begin the target of ``handle`` again under another hidden name, with the content that ``handle`` covers.
        ``source``: a file that begins with this content.

        Raises ``StorageError`` when it is shorter.
        """
        path, left = self.path(source), handle.size_bytes
        self._check_whole(path, left)
        stream = self.open(handle.target)
        self.copy_to(stream, path, left)
        return stream

    def copy_to(self, stream: RecoverableStream, path: str, left: int) -> None:
        """Write the first ``left`` bytes of another file."""
        with self.fs.open_read(path) as file:
            while left:
                data = file.read(min(left, _COPY_BYTES))
                assert data, "the file ends before its end"
                stream.write(data)
                left -= len(data)

    def recover(self, handle: ResumeHandle) -> RecoverableStream:
        """Cut the file of ``handle`` to its length and continue after it.

        Raises ``StorageError`` when it is gone or has become shorter.
        """
        assert self._resumes, "asked to resume a file by a writer that cannot"
        temporary, target, size_bytes = handle
        path = hidden_inside(self._directory, temporary)
        if not self.fs.exists(path):
            raise StorageError(
                f"{path} was open in the restored checkpoint, with {size_bytes} bytes, but is gone\n"
                f"  it has been committed as {target!r} since, or something else deletes files in the sink's directory"
            )
        if self._check_whole(path, size_bytes) > size_bytes:
            self.fs.truncate(path, size_bytes)
        return RecoverableStream(self.fs.open_append(path), path, temporary, target, size_bytes, sync=self._sync)

    def _check_whole(self, path: str, size_bytes: int) -> int:
        found_bytes = self.fs.size(path)
        if found_bytes < size_bytes:
            raise StorageError(
                f"{path} had {size_bytes} bytes in the restored checkpoint but has {found_bytes}\n"
                "  something else writes to files in the sink's directory"
            )
        return found_bytes

    # --- committing ---------------------------------------------------------------------------------------

    def commit(self, pending: PendingFile) -> None:
        """Make ``pending`` visible. Strict: its hidden file must exist, whole, and its name must be free.

        Raises ``StorageError``.
        """
        temporary, target, size_bytes = pending
        path = self.path(temporary)
        found_bytes = self._size_if_there(path)
        if found_bytes is None:
            raise StorageError(
                f"{path} was to be committed as {target!r} but is gone\n"
                "  something else deletes files in the sink's directory"
            )
        if found_bytes != size_bytes:
            raise _wrong_size(path, target, size_bytes, found_bytes)
        self._publish(temporary, target)

    def commit_after_recovery(self, pending: PendingFile) -> bool:
        """Make ``pending`` visible unless it was visible before the failure. Lenient: false when neither file exists
        (it was committed and later removed).

        Raises ``StorageError`` when the hidden file is too short or its name is taken.
        """
        temporary, target, size_bytes = pending
        path = hidden_inside(self._directory, temporary)
        found_bytes = self._size_if_there(path)
        if found_bytes is None:
            if not self.exists(target):
                return False
            # The attempt that renamed it may have died before the name was durable.
            self._changed[posixpath.dirname(target)] = None
            return True
        if found_bytes > size_bytes:
            self.fs.truncate(path, size_bytes)
        elif found_bytes < size_bytes and not self._commits_short_files:
            raise _wrong_size(path, target, size_bytes, found_bytes)
        if not self._replaces and self._has_both_names(path, target):
            self.fs.fsync_dir(posixpath.dirname(self.path(target)))
            self.delete(temporary)
        else:
            self._publish(temporary, target)
        return True

    def _has_both_names(self, path: str, target: str) -> bool:
        """Whether the file was committed, and a power cut has restored its hidden name."""
        return self.exists(target) and self.fs.read_bytes(self.path(target)) == self.fs.read_bytes(path)

    def _size_if_there(self, path: str) -> int | None:
        # One call instead of two: a commit may have very many files.
        try:
            return self.fs.size(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _publish(self, temporary: str, target: str) -> None:
        if not self._replaces and self.exists(target):
            raise name_taken(self.path(target))
        self.rename(temporary, target)

    # --- names --------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Rename a file in its directory; durable once directories are synced."""
        self.fs.rename(self.path(source), self.path(target))
        self._changed[posixpath.dirname(target)] = None

    def delete(self, relative: str) -> None:
        """Delete a hidden file that no state refers to; durable once directories are synced."""
        self.fs.delete(hidden_inside(self._directory, relative))
        self._changed[posixpath.dirname(relative)] = None

    def changed(self, bucket_id: str) -> None:
        """Remember that the names in a bucket must be made durable."""
        self._changed[bucket_id] = None

    def sync_directories(self) -> None:
        """Make all new and changed names durable."""
        for bucket in sorted(self._changed):
            self.fs.fsync_dir(self.path(bucket))
        self._changed.clear()


def _wrong_size(path: str, target: str, size_bytes: int, found_bytes: int) -> StorageError:
    return StorageError(
        f"{path} was to be committed as {target!r} with {size_bytes} bytes but has {found_bytes}\n"
        "  something else writes to files in the sink's directory"
    )


def name_taken(path: str) -> StorageError:
    """The error for a final name that another run has used."""
    return StorageError(
        f"{path} exists already: this directory holds the output of another run\n"
        "  choose an empty directory, or move the old output away; committed files are never overwritten"
    )


@contextmanager
def storage_problems(operator: str, path: str) -> Iterator[None]:
    """Turn an error of the file system below ``path`` into a ``StorageError`` that names the fix."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise StorageError(
            f"sink {operator!r} cannot write {where}: {error.strerror or error}\n"
            "  check that the directory exists, is writable and has space; then resume from the last checkpoint"
        ) from error
