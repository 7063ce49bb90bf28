"""The log of a Delta table, as far as a sink needs it: which checkpoint of a writer is the last one in it, and a commit
of files under the next one. ``deltalake`` implements it without a JVM; a model in memory serves searches.

A commit carries an application transaction (application id, version). Delta does **not** refuse an old version: the
caller compares, and the log is read anew whenever another writer was faster.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from engine.elements.errors import MissingDependencyError
from spark_bridge.errors import SparkBridgeError
from state_backends.files import FileSystem

_ATTEMPTS = 20


class DeltaLogError(SparkBridgeError):
    """A Delta table does not take what a sink has staged; nothing of it is lost, and nothing of it was committed."""


class DeltaFile(NamedTuple):
    """A Parquet file in the directory of the table."""

    name: str
    size_bytes: int
    rows: int


class DeltaLog(Protocol):
    """Makes the log of a table."""

    def open(self, file_system: FileSystem, directory: str, schema: Any) -> OpenDeltaLog:
        """The log of the table in a directory. The table is created with the first commit."""


class OpenDeltaLog(Protocol):
    """The log of one table."""

    def version(self, *applications: str) -> int | None:
        """The highest version of any transaction of these applications."""

    def append(self, application: str, version: int, files: Sequence[DeltaFile]) -> bool:
        """Add files, unless the application has this version or a later one already. Raises :class:`DeltaLogError`."""


def check_staged(file_system: FileSystem, directory: str, files: Sequence[DeltaFile]) -> None:
    """Raises :class:`DeltaLogError` unless each file is there as it was written."""
    for file in files:
        path = posixpath.join(directory, file.name)
        found = file_system.size(path) if file_system.exists(path) else None
        if found != file.size_bytes:
            state = "is gone" if found is None else f"has {found} bytes instead of {file.size_bytes}"
            raise DeltaLogError(
                f"{path} {state}: it was written for a checkpoint, and its {file.rows} rows are not in the table yet\n"
                "  fix: restore the file, or resume from an older checkpoint; a VACUUM of a table that a job writes to"
                " must retain files for longer than the longest time between a checkpoint and a resume"
            )


class DeltaLakeLog:
    """The real one, by the package ``deltalake``."""

    def open(self, file_system: FileSystem, directory: str, schema: Any) -> OpenDeltaLog:
        return _LakeTable(file_system, directory, schema)


class _LakeTable:
    def __init__(self, file_system: FileSystem, directory: str, schema: Any) -> None:
        self._lake = import_deltalake()
        self._files, self._directory, self._schema = file_system, directory, schema
        table = self._table()
        if table is not None:
            self._check_schema(table)

    def _table(self) -> Any:
        try:
            return self._lake.DeltaTable(self._directory)
        except self._lake.exceptions.TableNotFoundError:
            return None
        except self._lake.exceptions.DeltaError as error:
            raise self._unusable("be read", error) from error

    def _unusable(self, what: str, error: Exception) -> DeltaLogError:
        return DeltaLogError(
            f"the Delta table {self._directory} cannot {what}: {error}\n"
            "  fix: repair its _delta_log, or restore the table, then resume the job; or write to another path"
        )

    def version(self, *applications: str) -> int | None:
        table = self._table()
        found = () if table is None else map(table.transaction_version, applications)
        return max((one for one in found if one is not None), default=None)

    def _has(self, application: str, version: int) -> bool:
        """Delta itself would take the files a second time."""
        last = self.version(application)
        return last is not None and last >= version

    def append(self, application: str, version: int, files: Sequence[DeltaFile]) -> bool:
        lake = self._lake
        if self._has(application, version):
            return False
        check_staged(self._files, self._directory, files)
        if not os.path.exists(os.path.join(self._directory, files[0].name)):
            raise DeltaLogError(
                f"{self._directory} is a directory of {type(self._files).__name__}, and deltalake sees only the disk\n"
                "  fix: in a search, give the sink log=MemoryDeltaLog()"
            )
        for attempt in range(_ATTEMPTS):
            table = self._table()
            if table is None:
                # Another subtask may create it at the same time.
                os.makedirs(self._directory, exist_ok=True)
                table = lake.DeltaTable.create(self._directory, self._schema, mode="ignore")
            if self._has(application, version):
                return False
            self._check_schema(table)
            try:
                self._commit(table, application, version, files)
                return True
            except lake.exceptions.CommitFailedError as error:
                # Another writer was faster: read the log again and decide anew.
                if attempt == _ATTEMPTS - 1:
                    raise DeltaLogError(
                        f"{self._directory}: other writers were faster {_ATTEMPTS} times in a row: {error}\n"
                        "  fix: resume the job when they are done"
                    ) from error
            except lake.exceptions.DeltaError as error:
                raise self._unusable("be written", error) from error
        raise AssertionError("the last attempt returns or raises")

    def _commit(self, table: Any, application: str, version: int, files: Sequence[DeltaFile]) -> None:
        transaction = self._lake.Transaction(application, version)
        added = [self._added(file) for file in files]
        properties = self._lake.CommitProperties(app_transactions=[transaction])
        table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)

    def _added(self, file: DeltaFile) -> Any:
        from deltalake.transaction import AddAction

        modified_ms = int(os.path.getmtime(os.path.join(self._directory, file.name)) * 1000)
        return AddAction(file.name, file.size_bytes, {}, modified_ms, True, f'{{"numRecords":{file.rows}}}')

    def _check_schema(self, table: Any) -> None:
        import pyarrow as pa

        partitions = table.metadata().partition_columns
        found = pa.schema(table.schema())
        wanted, there = (_columns(schema) for schema in (self._schema, found))
        if partitions or wanted != there:
            what = f"is partitioned by {', '.join(partitions)}" if partitions else f"has the columns ({_shown(there)})"
            raise DeltaLogError(
                f"the Delta table {self._directory} {what}, the sink writes ({_shown(wanted)})"
                f"{' without partitions' if partitions else ''}\n"
                "  fix: declare the columns of the table in schema=, or write to another path"
            )


def _columns(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, f"{_plain(field.type)}{'' if field.nullable else ' not null'}") for field in schema]


def _plain(kind: Any) -> str:
    # Names of the inner fields of lists and maps differ between writers.
    import pyarrow as pa

    if pa.types.is_list(kind):
        return f"array<{_plain(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)},{_plain(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{_shown(_columns(kind))}>"
    return str(kind)


def _shown(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def import_deltalake() -> Any:
    """The package. Raises :class:`MissingDependencyError` with the extra that brings it."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise MissingDependencyError(
            "Delta tables need the package deltalake. Install it with: pip install 'weirstream[delta]'"
        ) from None
    return deltalake


class MemoryDeltaLog:
    """A model: versions by application, and the files that are added. Like Delta it takes any version."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.files: dict[str, DeltaFile] = {}
        self.place: tuple[FileSystem, str] | None = None

    def open(self, file_system: FileSystem, directory: str, schema: Any) -> OpenDeltaLog:
        self.place = file_system, directory
        return self

    def version(self, *applications: str) -> int | None:
        return max((self.versions[one] for one in applications if one in self.versions), default=None)

    def append(self, application: str, version: int, files: Sequence[DeltaFile]) -> bool:
        if self.versions.get(application, -1) >= version:
            return False
        assert self.place is not None, "opened first"
        check_staged(*self.place, files)
        self.versions[application] = version
        self.files.update((file.name, file) for file in files)
        return True

    def fingerprint(self) -> object:
        return sorted(self.versions.items()), sorted(self.files)
