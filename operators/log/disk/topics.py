"""The topics of a log on disk: their names, their numbers of partitions, and their files::

    LOG/topics/<topic>/topic               how many partitions, with a checksum
    LOG/topics/<topic>/<number>/*.log      the segments of one partition
    LOG/transactions/*.log, snapshot       the names and outcomes of transactions LOG/lock
    held by the process that writes
"""

from __future__ import annotations

import posixpath
import re

from engine.elements.errors import ConfigurationError, StorageError
from operators.log.port import LogCorruptError, TransactionLogError
from state_backends.base import CorruptStateError, StorageInUseError, StorageNotWritableError, check_shape, positive
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import DirectoryLock, FileSystem, write_atomically

TOPICS_DIRECTORY = "topics"
_MAGIC, _VERSION = b"WEIRTOPC", 1
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_name(kind: str, name: object) -> None:
    """Raises :class:`ConfigurationError` unless ``name`` is a valid directory name on every system."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.strip(".") == "":
        raise ConfigurationError(
            f"{kind} {name!r} cannot be kept on disk: a name has 1 to 249 of the characters A-Z, a-z, 0-9, '.', '_' and"
            " '-', and not only dots"
        )


def topic_directory(log: str, topic: str) -> str:
    """The directory of a topic."""
    return posixpath.join(log, TOPICS_DIRECTORY, topic)


def partition_directory(log: str, topic: str, partition: int) -> str:
    """The directory of a partition."""
    return posixpath.join(topic_directory(log, topic), str(partition))


def _topic_file(log: str, topic: str) -> str:
    return posixpath.join(topic_directory(log, topic), "topic")


def topics_of(fs: FileSystem, log: str) -> list[str]:
    """The names of all topics, sorted. A topic exists once its file does."""
    directory = posixpath.join(log, TOPICS_DIRECTORY)
    if not fs.is_dir(directory):
        return []
    return [name for name in fs.list_dir(directory) if fs.exists(_topic_file(log, name))]


def partitions_of(fs: FileSystem, log: str, topic: str) -> int | None:
    """How many partitions a topic has, ``None`` if it does not exist."""
    path = _topic_file(log, topic)
    if not fs.exists(path):
        return None
    try:
        with fs.open_read(path) as file:
            count: int = default_codec().decode(unseal(file, path, _MAGIC, _VERSION), path)
        check_shape(count, positive, path, "number of partitions")
    except CorruptStateError as error:
        raise LogCorruptError(path, 0, error.what) from error
    return count


def write_topic(fs: FileSystem, log: str, topic: str, partitions: int) -> None:
    """Make a topic, or give it more partitions, durably."""
    fs.make_dirs(topic_directory(log, topic))
    write_atomically(fs, _topic_file(log, topic), seal(_MAGIC, _VERSION, default_codec().encode(partitions)))


def lock_log(fs: FileSystem, directory: str) -> DirectoryLock:
    """Become the writer. Raises :class:`StorageError` if there is another, or the directory is not writable."""
    try:
        return fs.lock_directory(directory)
    except StorageInUseError as error:
        holder = "another process" if error.holder is None else f"process {error.holder}"
        raise StorageError(
            f"log {directory} is being written to by {holder}: two writers would overwrite each other\n"
            "  fix: wait for it to end, stop it, or write to another log; reading needs no lock"
        ) from error
    except StorageNotWritableError as error:
        raise StorageError(str(error)) from error
    except OSError as error:
        raise TransactionLogError(f"log {directory} cannot be opened: {error}") from error
