"""The file-system port, the only way to files, and its implementations. ``local`` is the real one. ``memory`` loses in
a crash all changes that were not made durable. ``over_fsspec`` reaches object stores. ``faulty`` fails as planned.
``wrapped`` is the base of those that wrap another one. ``port`` is the contract: other rooms use only
:class:`FileSystem`, and their caller gives them one.
"""

from __future__ import annotations

from state_backends.files.faulty import (
    FaultInjectingFileSystem as FaultInjectingFileSystem,
    FaultRule as FaultRule,
    FileFault as FileFault,
)
from state_backends.files.local import LocalFileSystem as LocalFileSystem
from state_backends.files.memory import MemoryFileSystem as MemoryFileSystem
from state_backends.files.over_fsspec import file_system_for as file_system_for
from state_backends.files.port import (
    TEMPORARY_SUFFIX as TEMPORARY_SUFFIX,
    DirectoryLock as DirectoryLock,
    FileSystem as FileSystem,
    RandomAccessFile as RandomAccessFile,
    WritableFile as WritableFile,
    write_atomically as write_atomically,
)
from state_backends.files.wrapped import WrappedFileSystem as WrappedFileSystem
