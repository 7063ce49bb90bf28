"""The file-system port, the only way to files, and what stands behind it: ``local`` is the real one, ``memory``
forgets at a crash what was not made durable, ``over_fsspec`` reaches object stores, ``faulty`` fails where it is told
to; ``wrapped`` is the base of those that stand in front of another one. ``port`` is the contract. Other rooms write
against :class:`FileSystem` and are given one.
"""

from __future__ import annotations

from state_backends.files.faulty import FaultInjectingFileSystem, FaultRule, FileFault
from state_backends.files.local import LocalFileSystem
from state_backends.files.memory import MemoryFileSystem
from state_backends.files.over_fsspec import file_system_for
from state_backends.files.port import (
    TEMPORARY_SUFFIX,
    DirectoryLock,
    FileSystem,
    RandomAccessFile,
    WritableFile,
    write_atomically,
)
from state_backends.files.wrapped import WrappedFileSystem

__all__ = [
    "TEMPORARY_SUFFIX",
    "DirectoryLock",
    "FaultInjectingFileSystem",
    "FileFault",
    "FaultRule",
    "FileSystem",
    "LocalFileSystem",
    "MemoryFileSystem",
    "RandomAccessFile",
    "WrappedFileSystem",
    "WritableFile",
    "file_system_for",
    "write_atomically",
]
