"""The places of the files that a checkpoint's metadata may name: a restore reads these files, and a claim deletes them.

A checksum proves that metadata is whole, not that it is honest: a program that can write a file can also write its
checksum. So a path in metadata may lead only to certain places. Rules:

* A file of one checkpoint lies in that checkpoint's directory; a shared or task-owned one in ``shared`` or
  ``taskowned`` of the job's directory. Its path is relative and has no ``..``.
* A shared file may lie in ``shared`` of *another* job's directory, under an absolute path or a URL, if the file
  ``shared-directories`` of this job's directory lists that directory. A run that starts from a checkpoint of another
  directory writes the list before its checkpoints can refer there (:func:`note_shared_directories`). It includes the
  other directory's own list, so that chains of claims work.
* The list notes for each directory whether its files may be deleted: claimed files may be, files that are only referred
  to (``legacy``) may not be.
* Links that lead out of these directories are not followed, nor is ``shared`` followed if it is a link itself. Links
  above them are the user's own.

Metadata is checked when it is read, before it is used.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from state_backends.base import CorruptStateError, StateBackendError
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import FileSystem, write_atomically
from state_backends.snapshots.handles import FileStateHandle, StateScope, StreamStateHandle

SHARED_DIRECTORIES_FILE_NAME = "shared-directories"
_MAGIC = b"WEIRSHDR"
_VERSION = 1


class ForbiddenPathError(StateBackendError):
    """Metadata names a file in a place that its checkpoint must not use.

    :ivar metadata_path: the metadata file
    :ivar path: the file that it names
    """

    def __init__(self, metadata_path: str, path: str, why: str, fix: str = "") -> None:
        super().__init__(
            f"{metadata_path}: refers to {path!r}, {why}. Nothing was read or deleted there.\n"
            f"  fix: {fix or 'do not use this checkpoint: it was changed, or not written by Weir'}"
        )
        self.metadata_path = metadata_path
        self.path = path


def check_places(
    fs: FileSystem, checkpoint_dir: str, job_dir: str | None, streams: Iterable[StreamStateHandle], metadata_path: str
) -> None:
    """Check every file that metadata names.

    :param job_dir: the job's directory, or ``None`` for a savepoint, which has all its files itself
    :raises ForbiddenPathError: for a file outside its permitted place
    :raises CorruptStateError: when the list of other directories is damaged
    """
    listed: Mapping[str, bool] | None = None
    real: dict[str, str] = {}
    for stream in streams:
        if not isinstance(stream, FileStateHandle):
            continue
        path, scope = stream.path, stream.scope
        if scope is StateScope.EXCLUSIVE:
            root, name = checkpoint_dir, ""
        elif job_dir is None:
            continue  # The reader raises the error: a savepoint has no such files.
        else:
            root, name = job_dir, scope.value
        full = posixpath.join(root, path)
        if not _is_below(path, name):
            owner = shared_directory_of(path) if scope is StateScope.SHARED else None
            if owner is None:
                raise ForbiddenPathError(metadata_path, path, f"which is not below {posixpath.join(root, name)}")
            assert job_dir is not None
            listed = shared_directories(fs, job_dir) if listed is None else listed
            if owner not in listed:
                raise ForbiddenPathError(
                    metadata_path,
                    path,
                    f"a file of another storage directory that {posixpath.join(job_dir, SHARED_DIRECTORIES_FILE_NAME)}"
                    " does not list",
                    "if an older version of Weir wrote this, and you know that the job was started from a checkpoint in"
                    f' {owner}, allow its files to be read: python -c "from state_backends.snapshots import allow;'
                    f' allow({job_dir!r}, {owner!r})"; otherwise do not use this checkpoint',
                )
            root, full = owner, path
        if not stays_in(fs, root, name, full, real):
            raise ForbiddenPathError(metadata_path, full, f"which a link leads out of {posixpath.join(root, name)}")


def shared_directory_of(path: str) -> str | None:
    """The job directory whose ``shared`` directly has the file at an absolute path or URL; ``None`` for other paths."""
    scheme, separator, rest = path.rpartition("://")
    parts = rest.split("/")
    if not separator:
        if parts[0]:
            return None
        parts = parts[1:]
    if len(parts) < 3 or any(part in ("", ".", "..") for part in parts) or parts[-2] != StateScope.SHARED.value:
        return None
    return scheme + separator + rest.rsplit("/", 2)[0]


def stays_in(fs: FileSystem, root: str, name: str, path: str, real: dict[str, str]) -> bool:
    """Whether no link leads a path out of the directory ``name`` of ``root``, or out of ``root`` if ``name`` is empty.
    ``root`` itself may be a link, because the user has named it.

    :param real: cache of resolved directories
    """
    directory = posixpath.join(root, name)
    if directory not in real:
        real[directory] = posixpath.join(fs.real_path(root), name, "").rstrip("/") + "/"
    return fs.real_path(path).startswith(real[directory])


def _is_below(path: str, first: str) -> bool:
    """Whether a path is relative, plain, and begins with a directory of that name, if one is asked for."""
    parts = path.split("/")
    if "://" in path or any(part in ("", ".", "..") for part in parts):
        return False
    return not first or (parts[0] == first and len(parts) > 1)


# --- directories of other jobs ----------------------------------------------------------------------------------------


def shared_directories(fs: FileSystem, job_dir: str) -> dict[str, bool]:
    """The directories of other jobs that may hold shared files of this one, and whether those may be deleted.

    :raises CorruptStateError: when the list is damaged
    """
    path = posixpath.join(job_dir, SHARED_DIRECTORIES_FILE_NAME)
    if not fs.exists(path):
        return {}
    with fs.open_read(path) as file:
        listed = default_codec().decode(unseal(file, path, _MAGIC, _VERSION), path)
    if not isinstance(listed, dict) or not all(
        isinstance(name, str) and isinstance(may_delete, bool) for name, may_delete in listed.items()
    ):
        raise CorruptStateError(path, "is no list of directories")
    return listed


def note_shared_directories(fs: FileSystem, job_dir: str, found: Mapping[str, bool]) -> None:
    """Add directories to the list, durably. A directory whose files may be deleted keeps that mark.

    :raises OSError: when the list cannot be written
    :raises CorruptStateError: when the list is damaged
    """
    known = shared_directories(fs, job_dir)
    merged = {name: found.get(name, False) or known.get(name, False) for name in sorted({*known, *found})}
    if merged != known:
        fs.make_dirs(job_dir)
        data = seal(_MAGIC, _VERSION, default_codec().encode(merged))
        write_atomically(fs, posixpath.join(job_dir, SHARED_DIRECTORIES_FILE_NAME), data)


def allow(job_dir: str, other_job_dir: str) -> None:
    """Let checkpoints in ``job_dir`` refer to shared files of another job's directory, without deleting them. For
    storage of older versions, which did not keep the list; call it only for storage that you trust.

    :raises OSError: when the list cannot be written
    """
    from state_backends.files import file_system_for

    fs, path = file_system_for(job_dir)
    note_shared_directories(fs, path, {other_job_dir.rstrip("/"): False})
