"""File sinks that do not wait for the disk: ``sync-on-flush = false``.

The sink is the one that it is otherwise, before a file system whose ``fsync`` of a file only flushes it. Names are made
durable as always. So after a power cut a file may have the name under which it was committed and lack its end, or all
of its content; nothing on the way back can tell, as the checkpoint says that it is committed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from engine.elements.operator import Operator, Output
from operators.files.sinks import FileSink
from operators.table.partitioned_file_sink import WriterSpec
from state_backends.files import DirectoryLock, FileSystem, RandomAccessFile, WritableFile

if TYPE_CHECKING:
    from engine.elements.operator import OperatorContext


class UnsyncedFile(WritableFile):
    """A file whose ``fsync`` is a ``flush``."""

    def __init__(self, file: WritableFile) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def fsync(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class UnsyncedFileSystem(FileSystem):
    """Another file system, with such files."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        return UnsyncedFile(self._files.open_write(path, exclusive=exclusive))

    def open_append(self, path: str) -> WritableFile:
        return UnsyncedFile(self._files.open_append(path))

    def open_read(self, path: str) -> BinaryIO:
        return self._files.open_read(path)

    def open_random(self, path: str) -> RandomAccessFile:
        return self._files.open_random(path)

    def truncate(self, path: str, size_bytes: int) -> None:
        self._files.truncate(path, size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._files.rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self._files.fsync_dir(path)

    def link(self, source: str, target: str) -> None:
        self._files.link(source, target)

    def list_dir(self, path: str) -> list[str]:
        return self._files.list_dir(path)

    def delete(self, path: str) -> None:
        self._files.delete(path)

    def delete_tree(self, path: str) -> None:
        self._files.delete_tree(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._files.is_dir(path)

    def size(self, path: str) -> int:
        return self._files.size(path)

    def make_dirs(self, path: str) -> None:
        self._files.make_dirs(path)

    def lock_directory(self, path: str) -> DirectoryLock:
        return self._files.lock_directory(path)


class _UnsyncedContext:
    """The context of an operator, with that file system."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        if name == "_context":
            raise AttributeError(name)
        return getattr(self._context, name)

    def file_system(self) -> FileSystem:
        return UnsyncedFileSystem(self._context.file_system())


def _set_up(operator: Operator, context: OperatorContext, output: Output) -> None:
    unsynced: Any = _UnsyncedContext(context)
    type(operator).setup(operator, unsynced, output)


def _unsynced(operator: Operator) -> Operator:
    operator.setup = partial(_set_up, operator)  # type: ignore[method-assign]
    return operator


class UnsyncedFileSink(FileSink):
    """A ``FileSink`` that does not wait for the disk."""

    def __init__(self, sink: FileSink) -> None:
        self.__dict__.update(sink.__dict__)

    def create_operator(self) -> Operator:
        """One operator of one subtask."""
        return _unsynced(super().create_operator())


class UnsyncedWriterSpec(WriterSpec):
    """The writers of a partitioned sink, likewise."""

    def __init__(self, writers: WriterSpec) -> None:
        self.__dict__.update(writers.__dict__)

    def create_operator(self) -> Operator:
        """One operator of one subtask."""
        return _unsynced(super().create_operator())
