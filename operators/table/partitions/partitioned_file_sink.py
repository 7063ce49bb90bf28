"""A table of files in partitions, for use in jobs (Flink: ``StreamingSink`` of the table connectors).

The sink is several operators::

    writers ─────────────────────────────────────► partition committer          with commit=
    writers ─► compact coordinator ─► compactors ─► partition committer          with compaction= and commit=

Writers and compactors run in parallel; there is one coordinator and one committer. Without ``commit`` there is no
committer, and partitions are not announced as complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, check_whole, shorten
from engine.elements.operator import Operator
from operators.files.compaction import merge_of
from operators.files.sinks import FileSink
from operators.files.writing import (
    DEFAULT_PARTITION_NAME,
    BucketAssigner,
    Format,
    RollingPolicy,
    TableRollingPolicy,
    is_bulk,
)
from operators.table.partitions.partition_commit import PartitionCommit, PartitionCommitterSpec
from operators.table.partitions.partition_compaction import CompactCoordinatorSpec, CompactSpec
from operators.table.partitions.partitioning import PartitionAssigner, TextInPath
from operators.table.partitions.streaming_file_writer import StreamingFileWriterOperator
from operators.table.partitions.table_compaction import UNCOMPACTED_PREFIX
from operators.transactions import part_options

DEFAULT_TARGET_SIZE_BYTES = 128 << 20


class TableCompaction:
    """Compaction of the small files of each checkpoint, before readers see them.

    ``target_size_bytes``  the size up to which files are merged;
    ``ns_per_byte``        virtual time that the compactors take;
    ``parallelism``        how many compactors there are, ``None`` = as many as writers.

    Raises :class:`ConfigurationError`.
    """

    def __init__(
        self,
        target_size_bytes: int = DEFAULT_TARGET_SIZE_BYTES,
        *,
        ns_per_byte: int = 0,
        parallelism: int | None = None,
    ) -> None:
        check_whole("target_size_bytes", target_size_bytes)
        check_whole("ns_per_byte", ns_per_byte, 0)
        self.target_size_bytes = target_size_bytes
        check_whole("parallelism", parallelism, or_none=True)
        self.ns_per_byte = ns_per_byte
        self.parallelism = parallelism


class WriterSpec(FileSink):
    """Describes the writers.

    ``makes_up_for_lost_announcements``  whether a restore announces every partition that it finds, and the commit
                                         trigger closes restored parts like others. Flink does neither.
    """

    name = "partitioned-file-sink"

    def __init__(
        self,
        path: str,
        columns: Sequence[str],
        commit: PartitionCommit | None,
        *,
        compacts: bool,
        keeps_columns: bool,
        default_partition: str,
        prefix: str,
        makes_up_for_lost_announcements: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(path, prefix=prefix, **options)
        self.columns = tuple(columns)
        self.commit = commit
        self.compacts = compacts
        self.keeps_columns = keeps_columns
        self.default_partition = default_partition
        self.makes_up_for_lost_announcements = makes_up_for_lost_announcements
        self.partition_text: TextInPath | None = None
        """How values of partition columns stand in paths; ``None`` = by ``str``."""
        if compacts:
            self.prefix = UNCOMPACTED_PREFIX + prefix

    def create_assigner(self) -> BucketAssigner:
        """The assigner of partitions to records, for one writer."""
        by_time = None if self.commit is None else self.commit.check(self.columns)
        checks = [] if by_time is None else [by_time]
        return PartitionAssigner(self.columns, self.default_partition, checks, self.partition_text)

    def create_operator(self) -> Operator:
        return StreamingFileWriterOperator(self)


class PartitionedFileSink:
    """Describes a table of files in partitions; takes dicts.

    ``path``               its directory, relative to the output directory of the run;
    ``partition_by``       the partition columns, outermost first;
    ``format``             how rows are written, as of ``FileSink``: JSON Lines unless given;
    ``commit``             when and how partitions are committed, a ``PartitionCommit``; ``None`` = never;
    ``compaction``         a ``TableCompaction``, or ``None``: then files become visible as they were written;
    ``rolling_policy``     when parts are closed; by default ``TableRollingPolicy``; parts stay open over checkpoints if
                           the format allows it and there is no compaction;
    ``keep_partition_columns``  whether files contain the partition columns, too;
    ``default_partition``  the name of the partition of rows without a value;
    ``prefix, suffix, bucket_check_interval_ms``  as of ``FileSink``.

    Raises :class:`ConfigurationError` for invalid options.
    """

    name = "partitioned-file-sink"

    def __init__(
        self,
        path: str,
        *,
        partition_by: Sequence[str],
        format: Format | None = None,
        commit: PartitionCommit | None = None,
        compaction: TableCompaction | None = None,
        rolling_policy: RollingPolicy | None = None,
        keep_partition_columns: bool = False,
        default_partition: str = DEFAULT_PARTITION_NAME,
        prefix: str = "part",
        suffix: str = "",
        bucket_check_interval_ms: int = 60_000,
    ) -> None:
        columns = PartitionAssigner(partition_by, default_partition).columns
        _check_type("commit", commit, PartitionCommit, "PartitionCommit(...)")
        _check_type("compaction", compaction, TableCompaction, "TableCompaction(...)")
        bulk = format is not None and is_bulk(format)
        policy = rolling_policy
        if policy is None:
            policy = TableRollingPolicy(roll_on_checkpoint=bulk or compaction is not None)
        elif compaction is not None and not getattr(policy, "rolls_on_every_checkpoint", True):
            raise ConfigurationError(
                f"compaction puts the files of each checkpoint together, and {type(policy).__name__} keeps them open\n"
                "  fix: leave rolling_policy out, or give TableRollingPolicy(roll_on_checkpoint=True, ...)"
            )
        self.writer = WriterSpec(
            path,
            columns,
            commit,
            compacts=compaction is not None,
            keeps_columns=keep_partition_columns,
            default_partition=default_partition,
            prefix=prefix,
            suffix=suffix,
            format=format,
            rolling_policy=policy,
            bucket_check_interval_ms=bucket_check_interval_ms,
        )
        self.path = path
        self.columns = columns
        self.commit = commit
        self.compaction = compaction
        if compaction is not None:
            merge_of(self.writer.format)

    def add_to(self, stream: Any, options: Any) -> None:
        """End ``stream`` in this sink (see ``SinkTopology``). ``options`` are the writers'."""
        if self.compaction is not None:
            written = stream.via(self.writer, **options)
            coordinator = CompactCoordinatorSpec(self.compaction.target_size_bytes)
            units = written.global_().via(coordinator, **part_options(options, "compact-coordinator")).broadcast()
            count = self.compaction.parallelism or options.get("parallelism") or self.writer.parallelism
            compactors = CompactSpec(self.path, self.writer.format, self.compaction.ns_per_byte, count)
            if self.commit is None:
                units.sink(compactors, **part_options(options, "compactor"))
                return
            written = units.via(compactors, **part_options(options, "compactor"))
        elif self.commit is None:
            stream.sink(self.writer, **options)
            return
        else:
            written = stream.via(self.writer, **options)
        committer = PartitionCommitterSpec(self.path, self.columns, self.commit)
        written.global_().sink(committer, **part_options(options, "partition-committer"))


def _check_type(name: str, value: object, wanted: type, example: str) -> None:
    if value is not None and not isinstance(value, wanted):
        raise ConfigurationError(f"{name} is {shorten(value)}; it must be {example} or None")
