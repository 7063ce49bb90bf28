"""Staging: the output of a bounded job goes to the table at the job's end, all at once (Flink:
``PartitionTempFileManager``, ``FileSystemCommitter``, ``PartitionLoader``).

Rules:

* Every task writes below ``{staging}/task-{n}-attempt-{a}/{partition}/``, and reports its finished files.
* A commit takes the staged partitions, and no others. For each it makes the directory. When it overwrites, it deletes
  the files that readers see there. Then it moves the staged files in and applies the policies. A table without
  partition columns is its own single partition, in no metastore.
* Names that start with ``.`` or ``_`` are not deleted.
* If no task has staged files and all partition columns are static, their partition is made; if it exists and the commit
  overwrites, it is emptied.
* A staged file whose name is taken becomes ``{name}_copy_1`` and so on, unless the commit overwrites that file.

A commit has two steps here. :func:`plan_commit` examines the table and decides which file goes where. The plan is a
plain value, which state can hold. :meth:`StagingCommitter.execute` carries it out. After a crash at any point it may be
called again, because it finds out which steps are done. So even an append is carried out once. (In Flink a repeated
append may leave rows twice.)
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.elements.errors import ConfigurationError, StorageError
from operators.files.formats import is_hidden
from operators.files.writing import DEFAULT_PARTITION_NAME, leads_out, partition_directory, path_inside
from operators.table.partitions import METASTORE, CommitPolicy, PartitionCommitContext, commit_partition
from state_backends.files import FileSystem

_ROOT_PREFIX = ".staging-"


def root_name(uid: str) -> str:
    """The default name of a sink's staging directory."""
    return f"{_ROOT_PREFIX}{uid}"


def check_staging(table: str, staging: str) -> None:
    """Raises :class:`ConfigurationError` when ``staging``, which is deleted in the end, contains the table, or is
    visible to readers of the table, so that an overwrite would delete it."""
    table, staging = (posixpath.normpath(posixpath.join("/", path)) for path in (table, staging))
    below = staging.removeprefix(f"{table.rstrip('/')}/")
    if f"{table}/".startswith(f"{staging.rstrip('/')}/"):
        raise ConfigurationError(
            f"the staging directory {staging} is deleted when its files have been moved, and the table {table} is in it"
            "\n  fix: give a staging directory that holds nothing else"
        )
    if below != staging and not any(map(is_hidden, below.split("/"))):
        raise ConfigurationError(
            f"the staging directory {staging} is a visible one in the table {table}: readers would see what is not"
            " committed, and an overwrite would delete it\n"
            "  fix: give one outside of the table, or one whose name starts with '.'"
        )


def check_staged(path: str, staging: str | None, *, is_root: bool = False) -> None:
    """Refuse the path of a staged file, or of the root of a staging directory, that does not lie in one: below a
    directory called ``.staging-…``, or below ``staging``, the sink's own. The sink moves the files named in its state,
    and deletes their root.

    Raises :class:`engine.elements.errors.StateError`.
    """
    parts = path.split("/")
    if path.startswith("/") and not any(part in ("..", ".") for part in parts):
        above = "/".join(parts[:-1])
        if staging is not None and (above == staging if is_root else above.startswith(f"{staging}/")):
            return
        if any(part.startswith(_ROOT_PREFIX) for part in (parts[-1:] if is_root else parts[:-1])):
            return
    raise leads_out(
        path, f"is not in a directory {_ROOT_PREFIX}…" + ("" if staging is None else f", nor in one of {staging}")
    )


class StagedFile(NamedTuple):
    """A file that waits for the commit. ``path`` is where it is, ``name`` its future name in ``partition``, which is
    ``""`` for a table without partitions."""

    path: str
    partition: str
    name: str
    size_bytes: int


class CommitPlan(NamedTuple):
    """The partitions of a commit, and which file goes where: ``name`` of each is free, or overwritten. A plain
    value."""

    overwrite: bool
    partitions: tuple[str, ...]
    files: tuple[StagedFile, ...]

    @classmethod
    def of(cls, plain: Any) -> CommitPlan:
        """Rebuilds the plan from lists and tuples, as state and files hold it."""
        overwrite, partitions, files = plain
        return cls(overwrite, tuple(partitions), tuple(StagedFile(*file) for file in files))


def _visible(fs: FileSystem, directory: str) -> list[str]:
    return [name for name in fs.list_dir(directory) if not is_hidden(name)] if fs.is_dir(directory) else []


def nothing_staged(
    partition_columns: Sequence[str], static_partition: Mapping[str, object], default_name: str = DEFAULT_PARTITION_NAME
) -> dict[str, list[StagedFile]]:
    """The commit of a job that wrote no rows: the static partition, or the table itself, without files. Without records
    there is no partition if some columns are dynamic."""
    if len(static_partition) < len(partition_columns):
        return {}
    values = [static_partition[column] for column in partition_columns]
    return {partition_directory(partition_columns, values, default_name): []}


def plan_commit(
    fs: FileSystem, table: str, partitions: Mapping[str, Sequence[StagedFile]], *, overwrite: bool
) -> CommitPlan:
    """The plan for these partitions; no others are committed."""
    files: list[StagedFile] = []
    for partition in sorted(partitions):
        directory = posixpath.join(table, partition)
        there = fs.list_dir(directory) if fs.is_dir(directory) else []
        taken = {name: None for name in there if is_hidden(name) or not overwrite}
        for file in partitions[partition]:
            name, copies = file.name, 0
            while name in taken:
                copies += 1
                name = f"{file.name}_copy_{copies}"
            taken[name] = None
            files.append(file._replace(name=name))
    return CommitPlan(overwrite, tuple(sorted(partitions)), tuple(files))


class StagingCommitter:
    """Carries plans out in one table.

    ``policies`` are applied to every partition of a plan when its files are in place; policies of a metastore only if
    the table has partition columns.
    """

    def __init__(
        self, fs: FileSystem, table: str, partition_columns: Sequence[str], policies: Sequence[CommitPolicy] = ()
    ) -> None:
        self._fs = fs
        self._table = table
        self._policies = [policy for policy in policies if partition_columns or policy.kind != METASTORE]

    def execute(self, plan: CommitPlan, now_ms: int, *, may_be_begun: bool = False) -> list[str]:
        """Do the remaining steps of ``plan``. Returns the files that are neither staged nor in the table.

        ``may_be_begun``: whether the plan may have been carried out in part before; if not, such a file is a
        :class:`StorageError`.
        """
        missing: list[str] = []
        files_of: dict[str, list[StagedFile]] = {partition: [] for partition in plan.partitions}
        for file in plan.files:
            files_of[file.partition].append(file)
        for partition, files in files_of.items():
            directory = self._directory(partition)
            self._fs.make_dirs(directory)
            if plan.overwrite:
                self._delete_all_but(directory, {file.name for file in files})
            for file in files:
                if not self._move(file, plan.overwrite, may_be_begun):
                    missing.append(posixpath.join(directory, file.name))
            self._fs.fsync_dir(directory)
            commit_partition(self._policies, PartitionCommitContext(self._fs, self._table, partition, now_ms))
        return missing

    def _directory(self, partition: str) -> str:
        return path_inside(self._table, partition)

    def _delete_all_but(self, directory: str, kept: set[str]) -> None:
        for name in _visible(self._fs, directory):
            path = posixpath.join(directory, name)
            if self._fs.is_dir(path):
                self._fs.delete_tree(path)
            elif name not in kept:
                self._fs.delete(path)

    def _move(self, file: StagedFile, overwrite: bool, may_be_begun: bool) -> bool:
        fs, target = self._fs, path_inside(self._table, file.partition, file.name)
        if not fs.exists(file.path):
            if fs.exists(target) or may_be_begun:
                return fs.exists(target)
            raise StorageError(
                f"{file.path} was to be moved to {target} but is gone\n"
                "  something else has deleted it, such as a job with the same staging directory; run the job again"
            )
        size_bytes = fs.size(file.path)
        if size_bytes != file.size_bytes:
            raise StorageError(
                f"{file.path} was to be moved to {target} with {file.size_bytes} bytes but has {size_bytes}\n"
                "  something else writes to the staging directory; give every job one of its own"
            )
        # A power failure may have kept both names of a moved file. Then both are the same file.
        if not overwrite and fs.exists(target) and fs.size(target) != size_bytes:
            raise StorageError(
                f"{target} was free when the commit was planned and is taken now\n"
                "  something else writes to this directory; move its file away and resume"
            )
        fs.rename(file.path, target)
        return True

    def take_back(self, plan: CommitPlan) -> int:
        """Move the files of a plan that was carried out, even in part, back to their staging places. Returns how many.
        Overwritten files do not come back."""
        moved = 0
        for file in plan.files:
            target = path_inside(self._table, file.partition, file.name)
            if self._fs.exists(target) and not self._fs.exists(file.path):
                self._fs.make_dirs(posixpath.dirname(file.path))
                self._fs.rename(target, file.path)
                self._fs.fsync_dir(posixpath.dirname(file.path))
                moved += 1
        for partition in plan.partitions:
            if self._fs.is_dir(self._directory(partition)):
                self._fs.fsync_dir(self._directory(partition))
        return moved
