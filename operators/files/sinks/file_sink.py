"""The exactly-once file sink: records in buckets (Flink: ``StreamingFileSink``, and the one operator of ``FileSink``).

Rules, in the words of that sink:

* A record goes to the open part of its bucket, a hidden file. The rolling policy says when the part is closed: at every
  checkpoint (the default), or by size, age and idle time. Closed parts are *pending*. The state holds pending files,
  and how far open ones have been written.
* When checkpoint ``n`` has completed, the sink commits the pending files of all checkpoints up to ``n``: it renames
  them to ``{prefix}-{subtask}-{counter}{suffix}``. No other file becomes visible; ``close`` does not publish.
* A restore from checkpoint ``n`` cuts the open files to their length in ``n``, and continues them. It commits the
  pending files in its state, leniently, because some may be committed already.
* After ``finish`` the last checkpoint commits the rest. Without checkpointing ``finish`` commits at once; then a
  failure can lose or repeat records.

Beyond Flink, a restore resets the directory to exactly the files that its checkpoint covers. This holds also for an
older checkpoint, if the newer one was damaged: :mod:`operators.files.writing.directory_reconciliation`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.elements.errors import ConfigurationError, check_whole, shorten
from engine.elements.operator import Operator, OperatorContext
from operators.files.formats import JsonLinesRowFormat, is_hidden, visible_files
from operators.files.sinks.file_sink_operator import FileSinkOperator
from operators.files.writing import (
    BasePathBucketAssigner,
    BucketAssigner,
    Format,
    FunctionBucketAssigner,
    OnCheckpointRollingPolicy,
    RecoverableWriter,
    RollingPolicy,
    check_rolling_policy,
    is_bulk,
    line_end_of,
    split_lines,
)
from state_backends.base import KeyType
from state_backends.files import FileSystem

if TYPE_CHECKING:
    from operators.files.compaction import CompactionStrategy
    from operators.files.sinks.committing_file_sink import CommittingFileSink

BucketFunction = Callable[[Any], str]

DEFAULT_BUCKET_CHECK_INTERVAL_MS = 60_000
DEFAULT_PART_PREFIX = "part"
DEFAULT_PART_SUFFIX = ""


class FileSink:
    """Describes a file sink.

    ``path``              the directory, relative to the output directory of the run;
    ``format``            how records are written: a row format (JSON Lines unless given) or a bulk format;
    ``bucket``            ``record -> sub-directory``, such as ``"day=2013-01-01"``; without one there is one bucket;
    ``bucket_assigner``   in place of ``bucket``: ``DateTimeBucketAssigner()``, or one of your own;
    ``prefix, suffix``    of part names: ``{prefix}-{subtask}-{counter}{suffix}``;
    ``rolling_policy``    when parts are closed; by default at every checkpoint. ``DefaultRollingPolicy()`` keeps them
                          open over checkpoints, which makes fewer and larger files;
    ``bucket_check_interval_ms``  how often time-based policies are asked, in ms of processing time;
    ``resumes``           whether a restore continues open parts. ``False`` commits them as they are in the checkpoint,
                          for file systems on which cutting a file or appending to it is expensive.

    Raises ``ConfigurationError`` for invalid options.
    """

    name = "file-sink"

    def __init__(
        self,
        path: str,
        *,
        format: Format | None = None,
        bucket: BucketFunction | None = None,
        bucket_assigner: BucketAssigner | None = None,
        prefix: str = DEFAULT_PART_PREFIX,
        suffix: str = DEFAULT_PART_SUFFIX,
        rolling_policy: RollingPolicy | None = None,
        bucket_check_interval_ms: int = DEFAULT_BUCKET_CHECK_INTERVAL_MS,
        resumes: bool = True,
    ) -> None:
        check_directory(path)
        check_part_names(prefix, suffix)
        check_whole("bucket_check_interval_ms", bucket_check_interval_ms)
        self.path = path
        self.format: Format = JsonLinesRowFormat() if format is None else checked_format(format)
        self.bucket = bucket
        self.bucket_assigner = checked_assigner(bucket, bucket_assigner)
        self.prefix = prefix
        self.suffix = suffix
        self.rolling_policy = check_rolling_policy(
            OnCheckpointRollingPolicy() if rolling_policy is None else rolling_policy, bulk=is_bulk(self.format)
        )
        self.bucket_check_interval_ms = bucket_check_interval_ms
        self.resumes = resumes
        self.sync = True
        """See :class:`RecoverableWriter`."""
        self.parallelism: int | None = None
        """How many writers there must be, ``None`` = as the job says."""
        self.key: Callable[[Any], str] | None = None
        """Records of one key go to one writer; ``None`` = as they come."""
        self.key_type: KeyType | None = None

    @property
    def part_files(self) -> str:
        """The names of its files, which no other sink of a job may have."""
        return f"{posixpath.normpath(self.path)}/{self.prefix}-*{self.suffix}"

    def create_operator(self) -> Operator:
        return FileSinkOperator(self)

    def open_directory(self, context: OperatorContext, unique: Callable[[], str]) -> RecoverableWriter:
        """The access of one subtask to its files. ``unique`` gives the ends of hidden names."""
        return RecoverableWriter(
            context.file_system(),
            context.resolve_path(self.path),
            unique,
            # Without checkpoints all files are written again, and replace those that an earlier attempt has published.
            replaces=not context.checkpointing_enabled,
            resumes=self.resumes,
            sync=self.sync,
        )

    def read_output(self, fs: FileSystem, directory: str) -> dict[str, list[str]]:
        """The rows that readers see in the sink's directory: bucket -> rows, sorted."""
        return read_committed(fs, directory, self.format)

    def with_committer(self) -> CommittingFileSink:
        """The same as two operators: writers, and committers after them (Flink: ``FileSink``)."""
        from operators.files.sinks.committing_file_sink import CommittingFileSink

        return CommittingFileSink(self)

    def compacting(self, strategy: CompactionStrategy, *, compaction_ns_per_byte: int = 0) -> CommittingFileSink:
        """The same with committers, and compaction of small files before readers see them.
        ``compaction_ns_per_byte``: virtual time that it takes."""
        from operators.files.compaction import CompactionStrategy
        from operators.files.sinks.committing_file_sink import CommittingFileSink

        if not isinstance(strategy, CompactionStrategy):
            raise ConfigurationError(f"strategy is {shorten(strategy)}; it must be CompactionStrategy(...)")
        return CommittingFileSink(self, strategy, compaction_ns_per_byte)


def check_directory(path: object, what: str = "path") -> None:
    """Raises :class:`ConfigurationError` when ``path`` is not a directory name."""
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{what} must be the name of a directory, got {path!r}")


def check_part_names(prefix: object, suffix: object) -> None:
    """Raises :class:`ConfigurationError` unless files with this prefix and suffix are visible in their directory."""
    for what, text in (("prefix", prefix), ("suffix", suffix)):
        if not isinstance(text, str) or "/" in text:
            raise ConfigurationError(f"{what} is {text!r}; it must be a text without '/', as a part of file names")
    if not prefix or is_hidden(str(prefix)):
        raise ConfigurationError(
            f"part names would be {f'{prefix}-0-0{suffix}'!r}: a prefix must not be empty or start with '.' or '_'"
        )


def checked_format(format: Any) -> Any:
    """``format``, if it can write. Raises :class:`ConfigurationError`."""
    needed = ("encode_batch", "select", "open_writer") if is_bulk(format) else ("encode",)
    for name in needed:
        # A text has a method ``encode`` too, but another one.
        if not callable(getattr(format, name, None)) or isinstance(format, str):
            raise ConfigurationError(
                f"format is {shorten(format)}, which has no method {name} for records; use JsonLinesRowFormat(), "
                "CsvRowFormat(), TextRowFormat(), BulkTextFormat(...) or ParquetFormat(...), or an object like them"
            )
    return format


def checked_assigner(bucket: BucketFunction | None, assigner: BucketAssigner | None) -> BucketAssigner:
    """The assigner of a sink with these options. Raises :class:`ConfigurationError`."""
    if bucket is not None and assigner is not None:
        raise ConfigurationError("bucket and bucket_assigner both say where records go: give one of them")
    if assigner is not None and not isinstance(assigner, BucketAssigner):
        raise ConfigurationError(
            f"bucket_assigner is {shorten(assigner)}; it must be a BucketAssigner, such as DateTimeBucketAssigner(). "
            "A function of the record goes into bucket="
        )
    if assigner is not None:
        return assigner
    return BasePathBucketAssigner() if bucket is None else FunctionBucketAssigner(bucket)


def read_committed(fs: FileSystem, path: str, format: Format | None = None) -> dict[str, list[str]]:
    """The committed rows below ``path``: bucket -> its lines, sorted. Hidden files and directories are left
    out.

    ``format``: of the sink, if that is a bulk format.

    Raises ``StorageError`` for a file that is torn.
    """
    buckets: dict[str, list[str]] = {}
    for bucket, file in visible_files(fs, path):
        buckets.setdefault(bucket, []).extend(_lines(file, fs.read_bytes(file), format))
    return {bucket: sorted(lines) for bucket, lines in sorted(buckets.items())}


def _lines(file: str, content: bytes, format: Format | None) -> list[str]:
    if format is not None and is_bulk(format):
        read: Callable[[str, bytes], list[str]] = getattr(format, "lines_of")  # noqa: B009
        return read(file, content)
    return split_lines(file, content, "\n" if format is None else line_end_of(format))
