"""The log-structured store as one of the kinds of store that keyed state may stand over."""

from __future__ import annotations

from state_backends.executor import Executor, InlineExecutor
from state_backends.filesystem_port import FileSystem
from state_backends.lsm.files import SST_SUFFIX
from state_backends.lsm.options import LsmOptions
from state_backends.lsm.store import LsmStore


class LsmStoreKind:
    """The log-structured store as a kind of store.

    :ivar name: stands in handles and metadata
    """

    name = "lsm"

    def __init__(self, options: LsmOptions | None = None, executor: Executor | None = None) -> None:
        """
        :param options: of all stores that are opened
        :param executor: does their compactions, ``None`` = on the spot
        """
        self.options = LsmOptions() if options is None else options
        self._executor: Executor = InlineExecutor() if executor is None else executor

    def open(self, file_system: FileSystem, directory: str, unique: str) -> LsmStore:
        """The store in a directory, or a new one."""
        return LsmStore(file_system, directory, unique, self.options, self._executor)

    def is_data_file(self, name: str) -> bool:
        """Whether a file of this name is immutable: files of entries are, logs and manifests are not."""
        return name.endswith(SST_SUFFIX)
