"""The directory of a checkpoint or savepoint: when it exists, what belongs to it, whether every byte is as written.

Rules:

* All files that a checkpoint refers to are durable first. Then its ``_metadata`` is written, fsynced and renamed, and
  its directory fsynced. From then on the checkpoint exists; before, it does not.
* It ceases to exist in one step too: its ``_metadata`` is deleted first.
* Metadata may name files only in the checkpoint's own places: :mod:`state_backends.snapshots.file_places`.
"""

from __future__ import annotations

import errno
import hashlib
import posixpath
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote

from state_backends.base import CorruptStateError, MissingStateError, StateSchemaError
from state_backends.files import FileSystem, write_atomically
from state_backends.snapshots.channel_state import read_channel_state
from state_backends.snapshots.checkpoint_streams import FsStateReader, FsStreamFactory, ScopeDirectories, path_below
from state_backends.snapshots.file_places import check_places
from state_backends.snapshots.handles import FileStateHandle
from state_backends.snapshots.metadata import CheckpointMetadata

METADATA_FILE_NAME = "_metadata"
DEFAULT_INLINE_THRESHOLD_BYTES = 20 * 1024
"""Up to this size, state travels inside the metadata instead of in a file of its own."""
MAX_INLINE_THRESHOLD_BYTES = 1024 * 1024
# File systems allow 255 bytes; a counter and a suffix are still to be added.
_MAX_NAME_CHARS = 200


class CheckpointLocation:
    """The directory of one checkpoint (or savepoint) while it is written or read."""

    def __init__(
        self,
        fs: FileSystem,
        checkpoint_id: int,
        directory: str,
        job_dir: str | None,
        inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES,
        attempt: str = "",
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.directory = directory
        self.metadata_path = path_below(directory, METADATA_FILE_NAME)
        """The metadata file: the checkpoint exists while this file does."""
        self.file_system = fs
        self._directories = ScopeDirectories(directory, job_dir)
        self._threshold = inline_threshold_bytes
        self._attempt = attempt

    def stream_factory(self, unique: str) -> FsStreamFactory:
        """Streams for one subtask's snapshot.

        :param unique: part of file names; it must never repeat in this directory, even after a crash, so it has
            operator uid, subtask, incarnation and attempt
        """
        name = safe_file_name(unique)
        return FsStreamFactory(self.file_system, self._directories, name, self._threshold, self._attempt)

    def reader(self) -> FsStateReader:
        return FsStateReader(self.file_system, self._directories)

    @property
    def job_dir(self) -> str | None:
        return self._directories.job_dir

    def full_path(self, handle: FileStateHandle) -> str:
        """The path of a file that this checkpoint refers to. A savepoint does not refer to shared files."""
        return self._directories.full_path(handle)

    def write_metadata(self, metadata: CheckpointMetadata) -> None:
        """Make the checkpoint exist: the last step. After it a restore can use the checkpoint.

        :raises OSError: when a step fails; the checkpoint then exists only if the file does
        """
        assert metadata.checkpoint_id == self.checkpoint_id
        # The names of state files must be durable before the metadata that refers to them.
        for directory in self._directories_of(metadata):
            self.file_system.fsync_dir(directory)
        write_atomically(self.file_system, self.metadata_path, metadata.to_bytes())

    def read_metadata(self) -> CheckpointMetadata:
        """Read the metadata of the checkpoint.

        :raises MissingStateError: when it does not exist
        :raises CorruptStateError: when its metadata is damaged or belongs to another checkpoint
        :raises StateSchemaError: when a newer program wrote it
        :raises ForbiddenPathError: when it names a file outside of the checkpoint's places
        """
        metadata = read_metadata_file(self.file_system, self.metadata_path)
        if metadata.checkpoint_id != self.checkpoint_id:
            raise CorruptStateError(self.metadata_path, f"is the metadata of checkpoint {metadata.checkpoint_id}")
        where = self._directories
        check_places(self.file_system, where.checkpoint_dir, where.job_dir, metadata.streams(), self.metadata_path)
        return metadata

    def verify(self) -> CheckpointMetadata:
        """Read the metadata, check every file it refers to against its checksum, and read the records in flight. A
        restore needs all of them before it can begin.

        :raises MissingStateError: when a file is not there
        :raises CorruptStateError: when any byte is not as written, or records in flight do not match the metadata
        :raises StateSchemaError: when a newer program wrote it
        """
        metadata = self.read_metadata()
        reader = self.reader()
        for stream in metadata.streams():
            reader.verify(stream)
        for handle in metadata.channel_state():
            # A type that is not registered here is not damage: the job to restore may know it.
            with suppress(StateSchemaError):
                read_channel_state(reader, handle)
        return metadata

    def discard(self) -> None:
        """Delete the checkpoint with the files that belong to it alone; shared files stay.

        :raises OSError: when a file cannot be deleted; if the metadata was deleted, the checkpoint does not
            exist any more
        """
        self._cease_to_exist()
        self.file_system.delete_tree(self.directory)

    def discard_files(self, paths: Iterable[str]) -> None:
        """Delete the metadata and these files, and the directory if nothing else is in it. Errors as of
        :meth:`discard`."""
        self._cease_to_exist()
        for path in paths:
            if self.file_system.exists(path):
                self.file_system.delete(path)
        if self.file_system.is_dir(self.directory) and not self.file_system.list_dir(self.directory):
            self.file_system.delete_tree(self.directory)

    def _cease_to_exist(self) -> None:
        if self.file_system.exists(self.metadata_path):
            # First and durably: a half-deleted checkpoint must not look like a checkpoint.
            self.file_system.delete(self.metadata_path)
            self.file_system.fsync_dir(self.directory)

    def _directories_of(self, metadata: CheckpointMetadata) -> list[str]:
        """The directories with files that the metadata refers to, sorted."""
        paths = [self.full_path(stream) for stream in metadata.streams() if isinstance(stream, FileStateHandle)]
        return sorted({posixpath.dirname(path) for path in paths})


def read_metadata_file(fs: FileSystem, path: str) -> CheckpointMetadata:
    """Read the metadata of any checkpoint, without a look at the files that it names. Raises as
    :meth:`CheckpointLocation.read_metadata`."""
    try:
        file = fs.open_read(path)
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise MissingStateError(path, "does not exist, so neither does the checkpoint") from problem
    except OSError as problem:
        if problem.errno not in (errno.EISDIR, errno.ELOOP):
            raise
        raise CorruptStateError(path, f"is no file ({problem.strerror})") from problem
    with file:
        return CheckpointMetadata.from_file(file, path)


@lru_cache(maxsize=1024)
def safe_file_name(text: str) -> str:
    """A file name for ``text``. A ``.`` at its start, and all but letters, digits and ``_.-~``, are percent-encoded.

    A name too long for a file system keeps its beginning, followed by a digest of the whole.
    """
    name = quote(text, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) <= _MAX_NAME_CHARS:
        return name
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{name[: _MAX_NAME_CHARS - len(digest) - 1]}-{digest}"
