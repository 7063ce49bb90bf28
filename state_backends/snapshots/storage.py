"""Checkpoint storage: the directory of a job, the numbers used in it, and which checkpoint can be restored.

Layout, as on Flink (FsCheckpointStorageAccess)::

    <base>/<job>/incarnation          the number of starts of this directory; part of every name
    <base>/<job>/checkpoint-ids       checkpoint numbers below this one are used up
    <base>/<job>/shared-directories   other jobs' directories, whose shared files checkpoints may refer to
    <base>/<job>/lock                 held by the run that uses the directory
    <base>/<job>/chk-N/_metadata      checkpoint N exists if and only if this file does
    <base>/<job>/chk-N/...            files that belong to checkpoint N alone
    <base>/<job>/shared/...           files that several checkpoints may refer to
    <base>/<job>/taskowned/...        files that only tasks delete
    <base>/<job>/work/...             local files of state backends, while the job runs

Rules:

* A damaged checkpoint is reported and the next older one is used; it is never silently half restored.
* The incarnation is raised durably before anything else, so no name is used twice, even after a crash.
* No checkpoint number is used twice either. The directory of a checkpoint shows that its number is used. The file
  ``checkpoint-ids`` notes the highest number before its directory is deleted, and the numbers of savepoints.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from state_backends.base import (
    CorruptStateError,
    StateArgumentError,
    StateBackendError,
    StorageNotWritableError,
    check_shape,
    whole,
)
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import TEMPORARY_SUFFIX, DirectoryLock, FileSystem, write_atomically
from state_backends.snapshots.checkpoint_location import (
    DEFAULT_INLINE_THRESHOLD_BYTES,
    MAX_INLINE_THRESHOLD_BYTES,
    METADATA_FILE_NAME,
    CheckpointLocation,
    read_metadata_file,
    safe_file_name,
)
from state_backends.snapshots.checkpoint_streams import FsStateReader, FsStreamFactory, ScopeDirectories, path_below
from state_backends.snapshots.file_places import (
    note_shared_directories,
    shared_directories,
    shared_directory_of,
    stays_in,
)
from state_backends.snapshots.handles import FileStateHandle, StateScope
from state_backends.snapshots.metadata import CheckpointMetadata

INCARNATION_FILE_NAME = "incarnation"
CHECKPOINT_IDS_FILE_NAME = "checkpoint-ids"
WORKING_DIR_NAME = "work"
CHECKPOINT_PREFIX = "chk-"
_SCOPE_NAMES = (StateScope.SHARED.value, StateScope.TASK_OWNED.value)
_NUMBER_MAGIC = {INCARNATION_FILE_NAME: b"WEIRINCR", CHECKPOINT_IDS_FILE_NAME: b"WEIRCKID"}
_NUMBER_VERSION = 1
_NOT_WRITABLE = frozenset([errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR])


class UsableCheckpoint(NamedTuple):
    """The newest checkpoint that can be restored, if any, and for each newer one the error, which names the file."""

    metadata: CheckpointMetadata | None
    problems: list[str]


class CheckpointStorage:
    """All checkpoints of one job.

    :ivar job_dir: the job's directory
    :ivar file_system: the file system of the checkpoints
    :ivar inline_threshold_bytes: up to this size, state travels inside the metadata
    """

    def __init__(
        self,
        fs: FileSystem,
        base_dir: str,
        job_name: str,
        *,
        inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES,
        attempt: str = "",
    ) -> None:
        """Create no file yet.

        :param attempt: see :class:`FsStreamFactory`
        :raises StateArgumentError: on an empty job name or a threshold outside 0 to 1 MiB
        """
        if not job_name:
            raise StateArgumentError("checkpoint storage needs a job name: it names the directory.")
        if not 0 <= inline_threshold_bytes <= MAX_INLINE_THRESHOLD_BYTES:
            raise StateArgumentError(
                f"inline_threshold_bytes {inline_threshold_bytes} is not within 0 to {MAX_INLINE_THRESHOLD_BYTES}."
            )
        self._job_name = job_name
        self.job_dir = posixpath.join(base_dir, safe_file_name(job_name))
        self._scopes = [path_below(self.job_dir, name) for name in _SCOPE_NAMES]
        self.file_system = fs
        self.inline_threshold_bytes = inline_threshold_bytes
        self._attempt = attempt
        self._location: CheckpointLocation | None = None
        """The last one asked for: all tasks write to one."""

    def seen_through(self, fs: FileSystem) -> CheckpointStorage:
        """The same storage, reached through another file system."""
        base_dir = posixpath.dirname(self.job_dir)
        return CheckpointStorage(fs, base_dir, self._job_name, inline_threshold_bytes=self.inline_threshold_bytes)

    @property
    def working_dir(self) -> str:
        """State backends keep their local files in this directory while the job runs; no file there outlives a run."""
        return posixpath.join(self.job_dir, WORKING_DIR_NAME)

    def lock(self) -> DirectoryLock:
        """Hold the job's directory exclusively, see :meth:`state_backends.files.FileSystem.lock_directory`."""
        return self.file_system.lock_directory(self.job_dir)

    def incarnation(self) -> int:
        """The number of starts of the directory so far; 0 for a new one.

        :raises CorruptStateError: when the file is damaged
        """
        return self._read_number(INCARNATION_FILE_NAME, 0)

    def next_incarnation(self, behind: int = 0) -> int:
        """Raise the incarnation durably and return it. Call it first, at each start and resume.

        :param behind: the number of the run that this one continues; the result is higher
        :raises StorageNotWritableError: when the directory cannot be written
        :raises CorruptStateError: when the present number cannot be read
        """
        number = max(self.incarnation(), behind) + 1
        try:
            self._write_number(INCARNATION_FILE_NAME, number)
        except OSError as problem:
            _raise_not_writable(self.job_dir, problem)
        return number

    def next_checkpoint_id(self) -> int:
        """A number above all numbers ever used here, also by checkpoints that never completed and by savepoints.

        :raises CorruptStateError: when ``checkpoint-ids`` is damaged
        """
        noted = self._read_number(CHECKPOINT_IDS_FILE_NAME, 1)
        # A number is never used twice; otherwise a sink takes new rows for committed ones
        # (mutant "commits skipped below the newest").
        return max(noted, self.highest_checkpoint_id() + 1)

    def note_used(self, checkpoint_id: int) -> None:
        """Note durably that a number is used up, even if its directory is deleted.

        :raises OSError: when the note cannot be written
        :raises CorruptStateError: when ``checkpoint-ids`` is damaged
        """
        if self._read_number(CHECKPOINT_IDS_FILE_NAME, 1) <= checkpoint_id:
            self._write_number(CHECKPOINT_IDS_FILE_NAME, checkpoint_id + 1)

    def _read_number(self, name: str, default: int) -> int:
        path = posixpath.join(self.job_dir, name)
        if not self.file_system.exists(path):
            return default
        with self.file_system.open_read(path) as file:
            payload = unseal(file, path, _NUMBER_MAGIC[name], _NUMBER_VERSION)
        number: int = default_codec().decode(payload, path)
        check_shape(number, whole, path, "number")
        return number

    def _write_number(self, name: str, number: int) -> None:
        self.file_system.make_dirs(self.job_dir)
        data = seal(_NUMBER_MAGIC[name], _NUMBER_VERSION, default_codec().encode(number))
        write_atomically(self.file_system, posixpath.join(self.job_dir, name), data)

    def location(self, checkpoint_id: int) -> CheckpointLocation:
        """The place of a checkpoint, whether it exists or not; creates nothing."""
        location = self._location
        if location is None or location.checkpoint_id != checkpoint_id or location.file_system is not self.file_system:
            directory = path_below(self.job_dir, f"{CHECKPOINT_PREFIX}{checkpoint_id}")
            location = self._location = CheckpointLocation(
                self.file_system, checkpoint_id, directory, self.job_dir, self.inline_threshold_bytes, self._attempt
            )
        return location

    def initialize_location(self, checkpoint_id: int) -> CheckpointLocation:
        """Create the directories for a new checkpoint.

        :raises StateArgumentError: when the checkpoint exists: numbers are never used twice
        :raises StorageNotWritableError: when they cannot be created
        """
        location = self.location(checkpoint_id)
        if self.file_system.exists(location.metadata_path):
            raise StateArgumentError(
                f"{location.directory}: checkpoint {checkpoint_id} exists already. Continue with a number above "
                f"{self.highest_checkpoint_id()}, or choose another storage directory."
            )
        self._make_dirs(*self._scopes, location.directory)
        return location

    def initialize_savepoint_location(self, directory: str, checkpoint_id: int) -> CheckpointLocation:
        """Create the directory of a savepoint, which has all its files and may be moved.

        :raises StateArgumentError: when the directory is not empty
        :raises StorageNotWritableError: when it cannot be created
        """
        if self.file_system.exists(directory) and (
            not self.file_system.is_dir(directory) or self.file_system.list_dir(directory)
        ):
            raise StateArgumentError(f"{directory}: is not an empty directory. Choose a new one for the savepoint.")
        self._make_dirs(directory)
        return CheckpointLocation(self.file_system, checkpoint_id, directory, None, self.inline_threshold_bytes)

    def savepoint_location(self, directory: str) -> CheckpointLocation:
        """The place of an existing savepoint; its number is in its metadata.

        :raises MissingStateError: when there is no savepoint
        :raises CorruptStateError: when its metadata is damaged
        """
        metadata = read_metadata_file(self.file_system, posixpath.join(directory, METADATA_FILE_NAME))
        return CheckpointLocation(
            self.file_system, metadata.checkpoint_id, directory, None, self.inline_threshold_bytes
        )

    def list_checkpoints(self) -> list[int]:
        """The numbers of all checkpoints that exist, ascending; damaged ones included."""
        return [one for one in self._directory_ids() if self.file_system.exists(self.location(one).metadata_path)]

    def highest_checkpoint_id(self) -> int:
        """The highest number that has a directory here, of a finished checkpoint or not; 0 without any."""
        return max(self._directory_ids(), default=0)

    def reader(self, checkpoint_id: int) -> FsStateReader:
        return self.location(checkpoint_id).reader()

    def read_metadata(self, checkpoint_id: int) -> CheckpointMetadata:
        """The metadata of a checkpoint, see :meth:`CheckpointLocation.read_metadata`."""
        return self.location(checkpoint_id).read_metadata()

    def verify(self, checkpoint_id: int) -> CheckpointMetadata:
        """Check a checkpoint's metadata and every file it refers to, see :meth:`CheckpointLocation.verify`.

        :raises CorruptStateError: also when it is a checkpoint of another job
        """
        location = self.location(checkpoint_id)
        metadata = location.verify()
        job = metadata.properties.get("job", self._job_name)
        if job != self._job_name:
            # When all its state is inlined, no missing file would show it.
            raise CorruptStateError(location.metadata_path, f"is the metadata of a checkpoint of job {job!r}")
        return metadata

    def latest_usable(self) -> UsableCheckpoint:
        """The newest checkpoint in which every byte is as written, and why newer ones cannot be used."""
        problems: list[str] = []
        for checkpoint_id in reversed(self.list_checkpoints()):
            try:
                return UsableCheckpoint(self.verify(checkpoint_id), problems)
            except (StateBackendError, OSError) as problem:
                problems.append(f"checkpoint {checkpoint_id} cannot be used: {problem}")
        return UsableCheckpoint(None, problems)

    def discard(self, checkpoint_id: int) -> None:
        """Delete a checkpoint with the files that belong to it alone; shared files stay.

        :raises OSError: when something cannot be deleted, or its number cannot be noted first
        """
        if checkpoint_id == self.highest_checkpoint_id():
            # After the delete only this note shows that the number is used up.
            self.note_used(checkpoint_id)
        self.location(checkpoint_id).discard()

    def discard_leftovers(self) -> list[str]:
        """Delete the leftovers of a crash: directories without metadata, and unfinished files.

        Call it only while holding the lock and before any checkpoint is triggered.

        :returns: the paths deleted, sorted
        """
        deleted = []
        if self.file_system.exists(self.working_dir):
            deleted.append(self.working_dir)
            self.file_system.delete_tree(self.working_dir)
        for checkpoint_id in self._directory_ids():
            location = self.location(checkpoint_id)
            if not self.file_system.exists(location.metadata_path):
                deleted.append(location.directory)
                self.discard(checkpoint_id)
        for path in self._files_in(""):
            if path.endswith(TEMPORARY_SUFFIX):
                deleted.append(path)
                self.file_system.delete(path)
        return sorted([*deleted, *self.sweep_shared()])

    def _files_in(self, name: str) -> list[str]:
        """All files in one of the job's directories, except those reached through a link that leads out of it."""
        fs, root, real = self.file_system, self.job_dir, dict[str, str]()
        files = fs.walk_files(posixpath.join(root, name))
        return [path for path in files if stays_in(fs, root, name, path, real)]

    def sweep_shared(self) -> list[str]:
        """Delete the files in the shared scope that no checkpoint refers to, such as uploads for checkpoints that never
        completed. Call it only while holding the lock and while no task writes.

        If the metadata of a checkpoint cannot be read, no file is deleted, because its references are unknown.

        :returns: the paths deleted, sorted
        :raises OSError: when something cannot be read or deleted
        """
        files = self._files_in(StateScope.SHARED.value)
        if not files:
            return []
        used: set[str] = set()
        for checkpoint_id in self.list_checkpoints():
            location = self.location(checkpoint_id)
            try:
                metadata = location.read_metadata()
            except StateBackendError:
                return []
            used.update(location.full_path(one) for one in metadata.streams() if isinstance(one, FileStateHandle))
        unused = sorted(path for path in files if path not in used)
        for path in unused:
            self.file_system.delete(path)
        return unused

    def shared_stream_factory(self, unique: str) -> FsStreamFactory:
        """Streams into the shared scope, for files written between checkpoints.

        :param unique: part of file names; it must never repeat, even after a crash
        :raises StorageNotWritableError: when the directory cannot be created
        """
        directory = posixpath.join(self.job_dir, StateScope.SHARED.value)
        self._make_dirs(directory)
        directories = ScopeDirectories(self.job_dir, self.job_dir)
        name = safe_file_name(unique)
        return FsStreamFactory(self.file_system, directories, name, self.inline_threshold_bytes, self._attempt)

    def delete_shared(self, handle: FileStateHandle) -> None:
        """Delete a file in the shared scope; a missing one is fine. One of another job stays unless it was claimed.

        :raises OSError: when it cannot be deleted
        """
        assert handle.scope is StateScope.SHARED, handle
        if self._attempt:
            # Another attempt may have it, too: by its content, the name is the same.
            return
        path, owner = path_below(self.job_dir, handle.path), shared_directory_of(handle.path)
        if owner is not None and not shared_directories(self.file_system, self.job_dir).get(owner, False):
            return
        root = self.job_dir if owner is None else owner
        if self.file_system.exists(path) and stays_in(self.file_system, root, StateScope.SHARED.value, path, {}):
            self.file_system.delete(path)

    def may_refer_to(self, directories: Mapping[str, bool]) -> None:
        """Note durably that checkpoints may refer to shared files in directories of other jobs, and whether these
        files may be deleted."""
        note_shared_directories(self.file_system, self.job_dir, directories)

    def reaches(self, path: str, handle: FileStateHandle) -> bool:
        """Whether this file system has the file of a handle of another storage, at an absolute path."""
        try:
            return self.file_system.exists(path) and self.file_system.size(path) == handle.size_bytes
        except OSError:
            return False

    def _make_dirs(self, *directories: str) -> None:
        """Make directories; an error names the last one."""
        try:
            for directory in directories:
                self.file_system.make_dirs(directory)
        except OSError as problem:
            _raise_not_writable(directories[-1], problem)

    def _directory_ids(self) -> list[int]:
        if not self.file_system.is_dir(self.job_dir):
            return []
        prefix = len(CHECKPOINT_PREFIX)
        names = [name for name in self.file_system.list_dir(self.job_dir) if name.startswith(CHECKPOINT_PREFIX)]
        return sorted(int(name[prefix:]) for name in names if name[prefix:].isdecimal())


def _raise_not_writable(path: str, problem: OSError) -> NoReturn:
    """The error for a failed creation; the error of a failing disk stays an :class:`OSError`."""
    if problem.errno in _NOT_WRITABLE:
        raise StorageNotWritableError(path, problem.strerror or str(problem)) from problem
    raise problem
