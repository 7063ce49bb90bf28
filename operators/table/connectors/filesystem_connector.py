"""The connector ``filesystem``: tables of files in directories, partitioned by columns in their paths.

Rules (Flink: ``FileSystemTableFactory``, ``FileSystemConnectorOptions``)
-------------------------------------------------------------------------
* Partition columns are not in the files. A source takes them from the path of each file, in the type of the schema; a
  sink makes directories ``column=value`` from them.
* A streaming sink publishes with checkpoints, and cannot overwrite. A batch sink (``execution.runtime-mode``) writes to
  a staging directory. It moves these files into the table at the end of its input.
* Contradictory options and options without effect are refused.
* ``sync-on-flush = false`` hands bytes to the operating system without waiting for the disk. Then the output survives
  the death of the process, but not of the machine: rows of completed checkpoints may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.files.sinks import FileSink
from operators.files.writing import DEFAULT_PARTITION_NAME, TableRollingPolicy, is_bulk
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.connectors.factories import FormatFactory, TableDefinition
from operators.table.connectors.table_source import TableFileSource, text_in_path
from operators.table.partitions import (
    CUSTOM,
    METASTORE,
    SUCCESS_FILE,
    CommitPolicy,
    DefaultPartitionTimeExtractor,
    PartitionCommit,
    PartitionedFileSink,
    SqliteMetastore,
    TableCompaction,
    commit_policies,
    partition_key,
    policy_kinds,
)
from operators.table.staging import StagedFileSink
from state_backends.base import STRING

_MINUTE_MS = 60_000
_METASTORE_FILE = "metastore.sqlite"

SINK_PARALLELISM = ConfigOption(
    "sink.parallelism", "number", "how many subtasks write; as many as the job says if none", least=1
)

_ROLLING = (
    ConfigOption("sink.rolling-policy.file-size", "size", "close a part that is larger", 128 << 20),
    ConfigOption("sink.rolling-policy.rollover-interval", "duration", "close a part that is older", 30 * _MINUTE_MS),
    ConfigOption("sink.rolling-policy.inactivity-interval", "duration", "close a quiet part", 30 * _MINUTE_MS),
    ConfigOption("sink.rolling-policy.check-interval", "duration", "how often age and quiet are looked at", _MINUTE_MS),
)
_COMPACTION = (
    ConfigOption("auto-compaction", "boolean", "put the small files of each checkpoint together", False),
    ConfigOption("compaction.file-size", "size", "up to which size; that of a part if it is not given"),
    ConfigOption(
        "compaction.parallelism", "number", "how many subtasks compact; as many as write if it is not given", least=1
    ),
)
_COMMIT = (
    ConfigOption(
        "sink.partition-commit.trigger", "choice", "which time decides when a partition is committed", "process-time",
        ("process-time", "partition-time"),
    ),
    ConfigOption("sink.partition-commit.delay", "duration", "how long after that time", 0),
    ConfigOption("sink.partition-commit.watermark-time-zone", "text", "of the times of partitions", "UTC"),
    ConfigOption("sink.partition-commit.policy.kind", "text", "what is done: success-file, metastore, custom"),
    ConfigOption("sink.partition-commit.policy.class", "object", "the policy 'custom': an object, or 'module:name'"),
    ConfigOption("sink.partition-commit.policy.class.parameters", "list", "texts that such a class is called with"),
    ConfigOption("metastore.path", "text", "the SQLite file of the policy metastore", _METASTORE_FILE),
    ConfigOption("metastore.table", "text", "the table's name in it; its path if it is not given"),
    ConfigOption("sink.partition-commit.success-file.name", "text", "the file that success-file makes", "_SUCCESS"),
    ConfigOption(
        "partition.time-extractor.kind", "choice", "who says which time a partition is for", "default",
        ("default", "custom"),
    ),
    ConfigOption("partition.time-extractor.class", "object", "the extractor 'custom': an object, or 'module:name'"),
    ConfigOption("partition.time-extractor.timestamp-pattern", "text", "with $column for its value: '$day $h:00:00'"),
    ConfigOption("partition.time-extractor.timestamp-formatter", "text", "pattern letters, such as 'yyyyMMdd'"),
)  # fmt: skip
_SOURCE = (
    ConfigOption("source.path.regex-pattern", "text", "which files are read: an expression for their whole paths"),
    ConfigOption("source.monitor-interval", "duration", "look for new files so often, and never end"),
    ConfigOption(
        "source.assignment", "choice", "whether splits are dealt out at the start or pulled", None, ("static", "pull")
    ),
    ConfigOption("source.split-size", "size", "cut files into splits of this size; not at all if it is not given"),
    ConfigOption(
        "source.compression", "choice", "of the files that are read; auto goes by the end of the name", "auto",
        ("auto", "none", "gzip", "bzip2", "xz", "zstd"),
    ),
    ConfigOption(
        "source.on-malformed", "choice", "what is done with a line that does not fit the schema", "fail",
        ("fail", "skip", "side_output"),
    ),
)  # fmt: skip
_STREAMING, _BATCH = "streaming", "batch"
_COMMIT_KEYS = tuple(option.key for option in _COMMIT)
_EXTRACTOR_KEYS = tuple(key for key in _COMMIT_KEYS if key.startswith("partition.time-extractor"))
_NEEDED_KINDS = {
    "sink.partition-commit.policy.class": CUSTOM, "sink.partition-commit.policy.class.parameters": CUSTOM,
    "sink.partition-commit.success-file.name": SUCCESS_FILE, "metastore.path": METASTORE, "metastore.table": METASTORE,
}  # fmt: skip


class FileSystemConnector:
    """Connector ``filesystem``."""

    identifier = "filesystem"

    def options(self) -> Sequence[ConfigOption]:
        """All of them. A table has the same options for its source and its sink, and each uses the ones it needs."""
        return (
            ConfigOption("path", "text", "the directory of the table; of a sink below the run's output", required=True),
            ConfigOption("partition.default-name", "text", "partition of null and empty", DEFAULT_PARTITION_NAME),
            ConfigOption(
                "execution.runtime-mode", "choice", "whether the job that writes is bounded", _STREAMING,
                (_STREAMING, _BATCH),
            ),
            *_SOURCE,
            ConfigOption("sink.overwrite", "boolean", "partitions that are written lose what they had", False),
            ConfigOption("sink.staging", "text", "where a batch is written first; hidden in the table by default"),
            SINK_PARALLELISM,
            ConfigOption(
                "sink.shuffle-by-partition.enable", "boolean", "whether each partition is written by one subtask", False
            ),
            ConfigOption("sync-on-flush", "boolean", "whether bytes are on the disk before they are relied on", True),
            *_ROLLING,
            *_COMPACTION,
            *_COMMIT,
        )  # fmt: skip

    def takes_format(self) -> bool:
        return True

    # --- sources ------------------------------------------------------------------------------------------

    def create_source(self, table: TableDefinition, format: FormatFactory | None) -> TableFileSource:
        """A ``FileSource`` that adds the partition columns."""
        assert format is not None
        options = table.options
        monitor_ms = options["source.monitor-interval"]
        problems = [*_without_partitions(options, table.partition_keys)]
        if monitor_ms == 0:
            problems.append("'source.monitor-interval' is 0; leave it out to read what is there and end")
        if monitor_ms is not None and options["source.assignment"] == "static":
            problems.append("'source.monitor-interval' needs 'source.assignment' = 'pull': leave that out")
        if options["source.split-size"] == 0:
            problems.append("'source.split-size' is 0; leave it out to have one split for each file")
        try:
            re.compile(options["source.path.regex-pattern"] or "")
        except re.error as error:
            problems.append(f"'source.path.regex-pattern' is no regular expression: {error}")
        on_malformed = options["source.on-malformed"]
        lenient = f"{format.identifier}.ignore-parse-errors"
        if options.declares(lenient) and options[lenient]:
            if options.is_given("source.on-malformed") and on_malformed != "skip":
                problems.append(f"{lenient!r} and 'source.on-malformed' = {on_malformed!r} contradict each other")
            on_malformed = "skip"
        options.refuse(problems)
        return TableFileSource(
            options["path"],
            format.input_format(table),
            table,
            on_malformed=on_malformed,
            split_bytes=options["source.split-size"],
            compression=options["source.compression"],
            assignment=options["source.assignment"],
            monitor_interval_ms=monitor_ms,
            matching=options["source.path.regex-pattern"],
        )

    # --- sinks --------------------------------------------------------------------------------------------

    def create_sink(self, table: TableDefinition, format: FormatFactory | None) -> Any:
        """A ``FileSink``, a ``PartitionedFileSink`` or a ``StagedFileSink``."""
        assert format is not None
        options = table.options
        options.refuse([*_contradictions(options, table.partition_keys)])
        written = format.output_format(table)
        if options["execution.runtime-mode"] == _BATCH:
            staged = StagedFileSink(
                options["path"],
                format=written,
                partition_by=table.partition_keys,
                default_partition=options["partition.default-name"],
                overwrite=options["sink.overwrite"],
                policies=_policies(options),
                staging=options["sink.staging"],
            )
            staged.partition_text = partial(text_in_path, table)
            _spread(staged, table)
            return staged
        bulk, compacts = is_bulk(written), options["auto-compaction"]
        policy = TableRollingPolicy(
            roll_on_checkpoint=bulk or compacts,
            max_part_size_bytes=options["sink.rolling-policy.file-size"],
            rollover_interval_ms=options["sink.rolling-policy.rollover-interval"],
            inactivity_interval_ms=options["sink.rolling-policy.inactivity-interval"],
        )
        check_ms = options["sink.rolling-policy.check-interval"]
        if not table.partition_keys:
            sink = FileSink(options["path"], format=written, rolling_policy=policy, bucket_check_interval_ms=check_ms)
            sink.sync = options["sync-on-flush"]
            _spread(sink, table)
            return sink
        partitioned = PartitionedFileSink(
            options["path"],
            partition_by=table.partition_keys,
            format=written,
            commit=_commit(options),
            compaction=_compaction(options),
            rolling_policy=policy,
            default_partition=options["partition.default-name"],
            bucket_check_interval_ms=check_ms,
        )
        partitioned.writer.partition_text = partial(text_in_path, table)
        partitioned.writer.sync = options["sync-on-flush"]
        _spread(partitioned.writer, table)
        return partitioned


def _spread(writer: FileSink | StagedFileSink, table: TableDefinition) -> None:
    """Say how many subtasks write, and which of them which records."""
    writer.parallelism = table.options[SINK_PARALLELISM.key]
    if table.options["sink.shuffle-by-partition.enable"]:
        default_name = table.options["partition.default-name"]
        writer.key = partition_key(table.partition_keys, default_name, partial(text_in_path, table))
        writer.key_type = STRING


def _without_partitions(options: Options, partition_keys: Sequence[str]) -> Iterable[str]:
    if not partition_keys and options.is_given("partition.default-name"):
        yield "'partition.default-name' does nothing without 'partition.keys'"


def _contradictions(options: Options, partition_keys: Sequence[str]) -> Iterable[str]:
    is_batch = options["execution.runtime-mode"] == _BATCH
    yield from _without_partitions(options, partition_keys)
    if options["sink.shuffle-by-partition.enable"] and not partition_keys:
        yield "'sink.shuffle-by-partition.enable' needs 'partition.keys': without partitions there is nothing to go by"
    if options["sink.overwrite"] and not is_batch:
        yield (
            "'sink.overwrite' is for batches: a stream never has all rows of a partition, so it cannot replace it; "
            "set 'execution.runtime-mode' = 'batch' if the input is bounded"
        )
    if options.is_given("sink.staging") and not is_batch:
        yield "'sink.staging' is for batches: a streaming sink writes to hidden files beside the visible ones"
    if is_batch:
        unused = [option.key for option in (*_ROLLING, *_COMPACTION)]
        for key in options.given_among([*unused, "sync-on-flush"]):
            yield f"{key!r} is for streams: a batch publishes one file for each task and partition, at its end"
        kept = ("sink.partition-commit.policy.kind", *_NEEDED_KINDS)
        for key in options.given_among(one for one in _COMMIT_KEYS if one not in kept):
            yield f"{key!r} is for streams: the partitions of a batch are committed at its end"
    if not partition_keys:
        for key in options.given_among(_COMMIT_KEYS):
            yield f"{key!r} needs 'partition.keys': without partitions there is none to commit"
        if options["auto-compaction"]:
            yield "'auto-compaction' needs 'partition.keys'; for a table without them use FileSink(...).compacting(...)"
    elif (given := options.given_among(_COMMIT_KEYS)) and not options.is_given("sink.partition-commit.policy.kind"):
        yield (
            f"{given[0]!r} does nothing without 'sink.partition-commit.policy.kind', such as 'success-file': "
            "to commit a partition is to apply policies"
        )
    yield from _contradictions_in_compaction(options)
    yield from _contradictions_in_commit(options)


def _contradictions_in_compaction(options: Options) -> Iterable[str]:
    if not options["auto-compaction"]:
        for key in options.given_among(("compaction.file-size", "compaction.parallelism")):
            yield f"{key!r} does nothing without 'auto-compaction' = 'true'"
    if options["compaction.file-size"] == 0:
        yield "'compaction.file-size' is 0; leave it out to have files of the size of a part"


def _contradictions_in_commit(options: Options) -> Iterable[str]:
    if options["sink.partition-commit.trigger"] != "partition-time":
        for key in options.given_among(("sink.partition-commit.watermark-time-zone", *_EXTRACTOR_KEYS)):
            yield f"{key!r} does nothing unless 'sink.partition-commit.trigger' = 'partition-time'"
    is_custom = options["partition.time-extractor.kind"] == "custom"
    if is_custom != options.is_given("partition.time-extractor.class"):
        yield "'partition.time-extractor.kind' = 'custom' and 'partition.time-extractor.class' need each other"
    if is_custom:
        for key in options.given_among(_EXTRACTOR_KEYS[2:]):
            yield f"{key!r} is for 'partition.time-extractor.kind' = 'default'; your own class has its own"
    kinds = policy_kinds(options["sink.partition-commit.policy.kind"] or "")
    for key, kind in _NEEDED_KINDS.items():
        if options.is_given(key) and kind not in kinds:
            yield f"{key!r} does nothing unless {kind!r} is in 'sink.partition-commit.policy.kind'"
    if CUSTOM in kinds and not options.is_given("sink.partition-commit.policy.class"):
        yield "policy kind 'custom' needs 'sink.partition-commit.policy.class', the policy"


def _compaction(options: Options) -> TableCompaction | None:
    if not options["auto-compaction"]:
        return None
    given_bytes = options["compaction.file-size"]
    return TableCompaction(
        options["sink.rolling-policy.file-size"] if given_bytes is None else given_bytes,
        parallelism=options["compaction.parallelism"],
    )


def _policies(options: Options) -> tuple[CommitPolicy, ...]:
    kinds = options["sink.partition-commit.policy.kind"]
    if kinds is None:
        return ()
    return commit_policies(
        kinds,
        success_file_name=options["sink.partition-commit.success-file.name"],
        metastore=SqliteMetastore(options["metastore.path"]),
        table=options["metastore.table"] or options["path"],
        creates_table=True,
        custom=_object(options, "sink.partition-commit.policy.class", "sink.partition-commit.policy.class.parameters"),
    )


def _commit(options: Options) -> PartitionCommit | None:
    policies = _policies(options)
    if not policies:
        return None
    extractor: Any = None
    if options["sink.partition-commit.trigger"] == "partition-time":
        extractor = _object(options, "partition.time-extractor.class") or DefaultPartitionTimeExtractor(
            options["partition.time-extractor.timestamp-pattern"],
            options["partition.time-extractor.timestamp-formatter"],
        )
    return PartitionCommit(
        options["sink.partition-commit.trigger"],
        delay_ms=options["sink.partition-commit.delay"],
        policies=policies,
        extractor=extractor,
        watermark_time_zone=options["sink.partition-commit.watermark-time-zone"],
    )


def _object(options: Options, key: str, parameters_key: str | None = None) -> Any:
    """An object, or the one that a text ``module:name`` names: an object, or a class, which is called with the texts in
    ``parameters_key``."""
    value = options[key]
    parameters = () if parameters_key is None else options[parameters_key] or ()
    if not isinstance(value, str):
        if parameters:
            options.refuse(
                [f"{parameters_key!r} is for a class that {key!r} names as 'module:name', not for an object"]
            )
        return value
    module, _, name = value.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{key!r} is {value!r}, which cannot be found: {error}\n  write it as 'module:name', or give the object"
        ) from error
    if not isinstance(found, type):
        if parameters:
            options.refuse([f"{parameters_key!r} is for a class, and {value!r} is an object already"])
        return found
    try:
        return found(*parameters)
    except TypeError as error:
        raise ConfigurationError(
            f"{key!r} is {value!r}, which cannot be called with {parameters!r}: {error}"
        ) from error
