"""The file-system port and its three implementations, under one name.

See :mod:`state_backends.filesystem_port` for the contract, and the module of each implementation for
what it adds.
"""

from __future__ import annotations

from state_backends.faulty_filesystem import (
    OPERATIONS,
    Call,
    FaultInjectingFileSystem,
    FaultKind,
    FaultRule,
    SimulatedCrashError,
)
from state_backends.filesystem_port import (
    TEMPORARY_SUFFIX,
    DirectoryLock,
    FileSystem,
    RandomAccessFile,
    WritableFile,
    write_atomically,
)
from state_backends.local_filesystem import LOCK_FILE_NAME, LocalDirectoryLock, LocalFileSystem
from state_backends.memory_filesystem import MemoryFileSystem, Survives

__all__ = [
    "LOCK_FILE_NAME",
    "OPERATIONS",
    "TEMPORARY_SUFFIX",
    "Call",
    "DirectoryLock",
    "FaultInjectingFileSystem",
    "FaultKind",
    "FaultRule",
    "FileSystem",
    "LocalDirectoryLock",
    "LocalFileSystem",
    "MemoryFileSystem",
    "RandomAccessFile",
    "SimulatedCrashError",
    "Survives",
    "WritableFile",
    "write_atomically",
]
