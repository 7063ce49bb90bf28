"""Commits a partition: tells readers that it is there (Flink: ``PartitionCommitPolicy``).

* ``success-file``  an empty file, by default ``_SUCCESS``, in the partition's directory; it replaces an existing one.
* ``metastore``     an entry in the catalogue, created or updated. Only for tables that have one.
* ``custom``        an object of the user's.

Policies are applied to one partition after the other, in the configured order. A partition may be committed again,
because records come late and a restored job repeats work: **policies must be idempotent**.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.elements.errors import ConfigurationError, StorageError, WeirError
from operators.files.writing import extract_partition_spec, path_inside
from operators.table.partitions.metastore import MemoryMetastore, Metastore, PartitionEntry, PathOf, Spec
from state_backends.files import FileSystem

METASTORE, SUCCESS_FILE, CUSTOM = "metastore", "success-file", "custom"
POLICY_KINDS = (METASTORE, SUCCESS_FILE, CUSTOM)


@dataclass(frozen=True, slots=True)
class PartitionCommitContext:
    """One partition that is being committed.

    ``table_path``  the directory of the table;
    ``partition``   the path of the partition below it, ``k=v/k2=v2``;
    ``now_ms``      the job's clock.
    """

    file_system: FileSystem
    table_path: str
    partition: str
    now_ms: int

    @property
    def path(self) -> str:
        """The directory of the partition."""
        return path_inside(self.table_path, self.partition)

    @property
    def spec(self) -> Spec:
        """Columns and values, in the order of the path."""
        return tuple(extract_partition_spec(self.partition))


class CommitPolicy(Protocol):
    """Makes a partition known; idempotent. Any error fails the task, and the job's restart strategy decides."""

    kind: str
    """Its name in messages."""

    def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
        """The policy to use in this attempt, for a table partitioned by ``columns``: usually itself.

        Raises :class:`ConfigurationError` when it does not fit the table.
        """

    def commit(self, context: PartitionCommitContext) -> bool:
        """Make the partition known. Returns whether it is newly known; ``True`` if the policy cannot tell."""


class SuccessFilePolicy:
    """Writes an empty file with the given name."""

    kind = SUCCESS_FILE

    def __init__(self, name: str = "_SUCCESS") -> None:
        if not name or "/" in name or name in (".", "..") or "\0" in name:
            raise ConfigurationError(f"the success file's name is {name!r}; it must be the name of a file, without '/'")
        if not name.startswith(("_", ".")):
            raise ConfigurationError(
                f"the success file's name is {name!r}, and readers would take it for data\n"
                "  give a name that starts with '_' or '.', such as '_SUCCESS'"
            )
        self.name = name

    def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
        return self

    def commit(self, context: PartitionCommitContext) -> bool:
        files, path = context.file_system, posixpath.join(context.path, self.name)
        is_new = not files.exists(path)
        files.make_dirs(context.path)
        with files.open_write(path) as file:
            file.fsync()
        files.fsync_dir(context.path)
        return is_new

    def fresh(self) -> CommitPolicy:
        """The policy for another simulation: itself, because its files belong to the simulation."""
        return self

    def announced(self, files: FileSystem, table_path: str) -> list[str]:
        """The partitions that have the file, as paths below that of the table."""
        prefix, end = table_path.rstrip("/") + "/", f"/{self.name}"
        paths = [path for path in files.walk_files(table_path) if path.endswith(end)]
        return sorted(posixpath.dirname(path).removeprefix(prefix) for path in paths)


class MetastorePolicy:
    """Creates or updates the partition's entry of ``table`` in ``metastore``.

    ``creates``  whether a table that is not listed is listed when the job starts, with the sink's partition columns.
    """

    kind = METASTORE

    def __init__(self, metastore: Metastore, table: str, *, creates: bool = False) -> None:
        if not callable(getattr(metastore, "put_partition", None)):
            raise ConfigurationError(
                f"metastore is a {type(metastore).__name__}; it must have put_partition(), as SqliteMetastore has"
            )
        self.metastore = metastore
        self.table = table
        self.creates = creates

    def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
        """See ``CommitPolicy``: the table must be partitioned by the same columns."""
        metastore = self.metastore.resolved(path_of)
        if self.creates:
            metastore.ensure_table(self.table, columns)
        listed = metastore.partition_columns(self.table)
        if not listed:
            raise ConfigurationError(
                f"the metastore lists {self.table!r} as a table without partitions, so none can be committed to it\n"
                f"  create it with its partition columns, ({', '.join(map(repr, columns))}), or leave the metastore"
                " policy out"
            )
        if listed != tuple(columns):
            raise ConfigurationError(
                f"the sink writes partitions by ({', '.join(columns)}), but the metastore has {self.table!r} by "
                f"({', '.join(listed)})\n  give partition_by= the same columns in the same order"
            )
        return MetastorePolicy(metastore, self.table)

    def commit(self, context: PartitionCommitContext) -> bool:
        """See ``CommitPolicy``. Raises :class:`StorageError` when the metastore cannot be reached."""
        return self.metastore.put_partition(self.table, PartitionEntry(context.spec, context.path, context.now_ms))

    def fresh(self) -> CommitPolicy:
        """The policy for another simulation: with a metastore in memory that has the same table without partitions."""
        metastore = MemoryMetastore()
        if not self.creates:
            metastore.create_table(self.table, self.metastore.partition_columns(self.table))
        return MetastorePolicy(metastore, self.table, creates=self.creates)

    def announced(self, files: FileSystem, table_path: str) -> list[str]:
        """The listed partitions, as paths below that of the table."""
        listed = self.metastore.partitions(self.table)
        return sorted(entry.location.removeprefix(table_path.rstrip("/") + "/") for entry in listed)


def policy_kinds(kinds: str) -> list[str]:
    """The kinds named in ``kinds``, separated by commas."""
    return [name.strip().lower() for name in kinds.split(",")]


def commit_policies(
    kinds: str,
    *,
    success_file_name: str = "_SUCCESS",
    metastore: Metastore | None = None,
    table: str = "",
    creates_table: bool = False,
    custom: CommitPolicy | None = None,
) -> tuple[CommitPolicy, ...]:
    """The policies that ``kinds`` names, such as ``"metastore,success-file"``, in that order.

    ``metastore``  the catalogue of the table, which it may have to be entered in first (``creates_table``); a plain
                   table of files has none;
    ``custom``     stands for the kind ``custom``.

    Raises :class:`ConfigurationError` for a kind that is unknown, repeated, or lacks its metastore or object.
    """
    policies: list[CommitPolicy] = []
    names = policy_kinds(kinds)
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ConfigurationError(f"policy kinds {kinds!r} name {name!r} twice")
        if name == METASTORE:
            if metastore is None:
                raise ConfigurationError(
                    "policy kind 'metastore' is for tables of a catalogue with a metastore; this is a plain table of"
                    " files\n  use 'success-file', or give the table a metastore, such as SqliteMetastore(path)"
                )
            policies.append(MetastorePolicy(metastore, table, creates=creates_table))
        elif name == SUCCESS_FILE:
            policies.append(SuccessFilePolicy(success_file_name))
        elif name == CUSTOM:
            if custom is None:
                raise ConfigurationError("policy kind 'custom' needs custom=, an object with kind, open() and commit()")
            policies.append(custom)
        else:
            raise ConfigurationError(
                f"policy kind {name!r} is unknown; known are {', '.join(POLICY_KINDS)}, separated by commas"
            )
    check_policies(policies)
    return tuple(policies)


def one_process(policies: Sequence[CommitPolicy]) -> str | None:
    """See :class:`engine.elements.operator.Operator`, for an operator with these policies."""
    if any(isinstance(getattr(policy, "metastore", None), MemoryMetastore) for policy in policies):
        return "enters partitions in a metastore in the memory of one process: give it SqliteMetastore('path')"
    return None


def check_policies(policies: Sequence[CommitPolicy]) -> None:
    """Raises :class:`ConfigurationError` unless there are some and all are objects that can commit."""
    if not policies:
        raise ConfigurationError(
            "there is no policy, so to commit a partition would mean nothing\n"
            "  give one, such as SuccessFilePolicy(), or leave commit= out"
        )
    for policy in policies:
        missing = [name for name in ("open", "commit") if not callable(getattr(policy, name, None))]
        if isinstance(policy, type) or missing or not isinstance(getattr(policy, "kind", None), str):
            raise ConfigurationError(
                f"{policy!r} is no policy: it must be an object with kind (a str), open() and commit()\n"
                "  derive its class from SuccessFilePolicy, or write the three"
            )


def open_policies(policies: Iterable[CommitPolicy], path_of: PathOf, columns: Sequence[str]) -> list[CommitPolicy]:
    """The policies of one attempt. Raises :class:`ConfigurationError` when one does not fit the table, or returns
    something other than a policy."""
    opened = []
    for policy in policies:
        one = policy.open(path_of, columns)
        if not callable(getattr(one, "commit", None)):
            raise ConfigurationError(
                f"open() of policy {policy.kind!r} returned {one!r}, which is no policy\n"
                "  end it with `return self`, or return the policy that commits in this attempt"
            )
        opened.append(one)
    return opened


def commit_partition(policies: Sequence[CommitPolicy], context: PartitionCommitContext) -> bool:
    """Apply all policies in order. Returns whether any says that the partition was not committed before.

    Raises what a policy raises; an error that is not one of ours becomes a :class:`StorageError`.
    """
    is_new = False
    for policy in policies:
        try:
            is_new = bool(policy.commit(context)) or is_new
        except WeirError:
            raise
        except Exception as error:
            raise StorageError(
                f"policy {policy.kind!r} has failed on partition {context.partition!r}: "
                f"{type(error).__name__}: {error}\n"
                "  fix it; the partition is committed when the job is resumed"
            ) from error
    return is_new
