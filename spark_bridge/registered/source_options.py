"""Options of data sources, as users type them: names in any case, values as text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from engine.elements.suggestions import nearest
from spark_bridge.errors import SparkBridgeError
from state_backends.base import StateArgumentError
from state_backends.files import FileSystem, LocalFileSystem, file_system_for

PARTITION_BYTES = 32 << 20
"""How much of a file a partition reads, unless the option ``partition_bytes`` says otherwise."""


class SourceOptions:
    """The checked options of one data source.

    :raises SparkBridgeError: one is missing, or has a name that the source does not know
    """

    def __init__(self, format: str, given: Mapping[str, str], required: Sequence[str], others: Sequence[str]) -> None:
        self._format = format
        self._given = {name.lower(): value for name, value in given.items()}
        known = (*required, *others)
        for name in self._given:
            if name not in known:
                close = nearest(name, known)
                hint = f"did you mean {close!r}?" if close else f"it has {', '.join(known)}"
                raise SparkBridgeError(f"{format} has no option {name!r}; {hint}")
        for name in required:
            if not self._given.get(name):
                raise SparkBridgeError(f'{format} needs the option {name!r}: add .option("{name}", …)')

    def get(self, name: str) -> str | None:
        """The value as given."""
        return self._given.get(name)

    def count(self, name: str, default: int) -> int:
        """A whole number of at least 1."""
        text = self._given.get(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < 1:
            raise SparkBridgeError(f"{self._format}: {name} is {text!r}; it must be a whole number of at least 1")
        return int(text)

    def place(self) -> tuple[FileSystem, str]:
        """The file system of the option ``path``, and the absolute path in it.

        A relative path begins where the process runs that Spark has started: the directory in which the session was.
        """
        text = self._given["path"]
        try:
            return file_system_of(text) if "://" in text else (LocalFileSystem(), os.path.abspath(text))
        except StateArgumentError as error:
            raise SparkBridgeError(f"{self._format}: path is {text!r}: {error}") from None


def file_system_of(path: str) -> tuple[FileSystem, str]:
    """The file system of an absolute path or URL, and the path in it, on the driver or on an executor."""
    return file_system_for(path)
