"""A sink of a bounded job that fills or overwrites partitions of a table only when the job has succeeded
(Flink: a batch insert of the file system connector, ``INSERT INTO`` and ``INSERT OVERWRITE``).

Two operators: *writers*, which stage rows, and after them one *finalizer*, which moves them. Rules:

* Before every barrier, and at the end of its input, a writer finishes its files and reports them to the finalizer. So
  it has no state itself, and no state contains files that a dead attempt has staged since the last checkpoint.
* When the input of the finalizer has ended, it makes a plan: which file goes where, under which name. The last
  checkpoint contains the plan. The finalizer carries the plan out only after that checkpoint has completed, because a
  job that goes back would need the staged files. If the job dies meanwhile, the attempt that restores the plan carries
  out the rest.
* Before the first file is moved, the plan is written to a hidden file of the table. An attempt from an older
  checkpoint has no plan: it finds the file and takes the moves back. An attempt without state does so too, if the
  commit did not finish. An attempt that restores the plan sees in the file whether all of it was done. Then it does not
  touch the table, which may have changed since. At the very end the staging directories are deleted.
* Without checkpoints the plan is made and carried out when the input ends.

A job that does not end does not commit.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import JobChangedError, StorageError
from engine.elements.operator import Operator, no_records
from operators.basic import SinkOperator
from operators.files.formats import JsonLinesRowFormat
from operators.files.sinks import check_directory, check_part_names, checked_format, read_committed
from operators.files.writing import (
    DEFAULT_PARTITION_NAME,
    Format,
    RecordError,
    escape_path_name,
    is_bulk,
    report_lost_files,
    storage_problems,
)
from operators.table.partitions import (
    METASTORE,
    CommitPolicy,
    NoPartitionError,
    PartitionColumns,
    TextInPath,
    check_columns,
    check_policies,
    one_process,
    open_policies,
)
from operators.table.staging.moves import (
    CommitPlan,
    StagedFile,
    StagingCommitter,
    check_staged,
    check_staging,
    nothing_staged,
    plan_commit,
    root_name,
)
from operators.table.staging.staging_writers import StagingWriter
from state_backends.base import (
    CHECKSUM,
    KeyType,
    flag,
    list_of,
    optional,
    parse_json,
    path_below,
    row,
    seal_json,
    text,
    unseal_json,
    whole,
)
from state_backends.files import FileSystem, write_atomically

_ROOT, _FILE = "root", "file"
"""Kinds of messages to the finalizer: a staging directory to delete in the end, and a staged file."""


class StagedFileSink:
    """Describes the sink of a bounded job into a table.

    ``path``         the directory of the table, relative to the output directory of the run;
    ``format``       how a record, without its path columns, is written: row or bulk;
    ``columns``      names of the values, for records that are tuples; records that are dicts need none;
    ``partition_by``, ``static_partition``  the columns in the path, and the values of those with one value for all;
    ``default_partition``  the name of the partition of rows without a value;
    ``overwrite``    whether written partitions lose their old rows; other partitions do not change;
    ``grouped``      whether the input of every writer comes partition by partition, so that one open file is enough;
    ``policies``     applied to each partition when its files are in place, such as ``SuccessFilePolicy()``;
    ``prefix``, ``suffix``  of file names, ``{prefix}-{attempt}-task-{n}-file-{k}{suffix}``;
    ``staging``      a directory on the same file system as the table, invisible to its readers; by default a
                     hidden one in the table.

    Raises :class:`engine.elements.errors.ConfigurationError` for invalid options.
    """

    name = "staged-file-sink"

    def __init__(
        self,
        path: str,
        *,
        format: Format | None = None,
        columns: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        static_partition: Mapping[str, object] | None = None,
        default_partition: str = DEFAULT_PARTITION_NAME,
        overwrite: bool = False,
        grouped: bool = False,
        policies: Sequence[CommitPolicy] = (),
        prefix: str = "part",
        suffix: str = "",
        staging: str | None = None,
    ) -> None:
        check_directory(path)
        if staging is not None:
            check_directory(staging, "staging")
            if staging.startswith("/") == path.startswith("/"):
                # Otherwise only the run knows the place; it checks again.
                check_staging(path, posixpath.join(staging, "{uid}"))
        check_part_names(prefix, suffix)
        if policies:
            check_policies(policies)
        self.path = path
        self.format: Format = JsonLinesRowFormat() if format is None else checked_format(format)
        self.columns = columns
        self.partition_by = check_columns(partition_by) if partition_by else ()
        self.static_partition = dict(static_partition or {})
        self.default_partition = default_partition
        self.overwrite = overwrite
        self.grouped = grouped
        self.policies = tuple(policies)
        self.prefix, self.suffix = prefix, suffix
        self.staging = staging
        self.partition_text: TextInPath | None = None
        """How values of partition columns stand in paths; ``None`` = by ``str``."""
        self.partition_columns()
        self.parallelism: int | None = None
        """How many writers there must be, ``None`` = as the job says."""
        self.key: Callable[[Any], str] | None = None
        """Records of one key go to one writer; ``None`` = as they come."""
        self.key_type: KeyType | None = None

    def partition_columns(self) -> PartitionColumns:
        """Separates the columns in the path from the others."""
        return PartitionColumns(
            self.columns,
            self.partition_by,
            self.static_partition,
            self.default_partition,
            text_of=self.partition_text,
        )

    def add_to(self, stream: Any, options: Mapping[str, Any]) -> None:
        given = dict(options)
        stem = given.setdefault("name", None) or self.name
        given["name"] = f"{stem} writer"
        behind: dict[str, Any] = {"name": f"{stem} finalizer"}
        if given.get("uid") is not None:
            behind["uid"] = f"{given['uid']}-finalizer"
        stream.via(StagingWriters(self), **given).global_().sink(StagingFinalizer(self), **behind)

    def read_output(self, fs: FileSystem, directory: str) -> dict[str, list[str]]:
        """The rows visible in the table's directory: partition -> rows, sorted, without the columns in the path."""
        return read_committed(fs, directory, self.format)


class StagingWriters:
    """Describes the writers of a :class:`StagedFileSink`."""

    name = "staging-writer"

    def __init__(self, sink: StagedFileSink) -> None:
        self.sink = sink
        self.parallelism, self.key, self.key_type = sink.parallelism, sink.key, sink.key_type

    @property
    def part_files(self) -> str:
        """The names of its files, which no other sink of a job may have."""
        return f"{posixpath.normpath(self.sink.path)}/{self.sink.prefix}-*{self.sink.suffix}"

    def create_operator(self) -> Operator:
        return _StagingWriterOperator(self.sink)


class StagingFinalizer:
    """Describes the finalizer of a :class:`StagedFileSink`."""

    name = "staging-finalizer"
    parallelism = 1

    def __init__(self, sink: StagedFileSink) -> None:
        self.sink = sink

    def create_operator(self) -> Operator:
        return _FinalizerOperator(self.sink)


class _StagingWriterOperator(Operator):
    def __init__(self, spec: StagedFileSink) -> None:
        self._spec = spec
        self._writer: StagingWriter | None = None

    def open(self) -> None:
        spec, context = self._spec, self.context
        # The name is unique to this operator and this run, and never used twice.
        uid = escape_path_name(context.uid)
        staging = (spec.path, root_name(uid)) if spec.staging is None else (spec.staging, uid)
        self._root = context.resolve_path(posixpath.join(*staging))
        check_staging(context.resolve_path(spec.path), self._root)
        attempts = posixpath.join(self._root, f"run-{context.incarnation}")
        self._writer = StagingWriter(
            context.file_system(),
            posixpath.join(attempts, f"task-{context.subtask}-attempt-{context.attempt}"),
            context.subtask,
            spec.partition_columns(),
            spec.format,
            grouped=spec.grouped,
            prefix=f"{spec.prefix}-{context.incarnation}-{context.attempt}",
            suffix=spec.suffix,
        )
        with storage_problems(context.name, spec.path):
            self._writer.open()

    def process_batch(self, batch: Batch) -> None:
        assert self._writer is not None, "records before open"
        if not batch.values:
            return
        try:
            with storage_problems(self.context.name, self._spec.path):
                self._writer.write(batch.values)
        except RecordError as error:
            what = "bulk format" if is_bulk(self._spec.format) else "row format"
            if isinstance(error, NoPartitionError):
                what = "partition_by"
            raise self.user_error(what, error.record, error.cause) from error.cause

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        self._announce()

    def finish(self) -> None:
        self._announce()

    def _announce(self) -> None:
        assert self._writer is not None, "a checkpoint before open"
        with storage_problems(self.context.name, self._spec.path):
            files = self._writer.finish_files()
        self.output.emit(Batch([(_ROOT, self._root), *((_FILE, *file) for file in files)]))

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def fingerprint(self) -> object:
        return None if self._writer is None else self._writer.fingerprint()


_STAGED = row(text, path_below, path_below, whole)
_STATE = row(list_of(text), list_of(_STAGED), optional(row(flag, list_of(path_below), list_of(_STAGED))))
"""Roots, files, and the plan."""


class _FinalizerOperator(SinkOperator):
    """``_planned_in`` is the first checkpoint with the plan; once complete, the plan may be carried out."""

    summaries_of = staticmethod(no_records)

    def __init__(self, spec: StagedFileSink) -> None:
        self._spec = spec
        self.one_process = one_process(spec.policies)
        self._roots: dict[str, None] = {}
        self._files: dict[str, StagedFile] = {}
        self._plan: CommitPlan | None = None
        self._planned_in: int | None = None
        self._done = False

    # --- life cycle ---------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        spec, context = self._spec, self.context
        self._fs = context.file_system()
        self._table = context.resolve_path(spec.path)
        self._note = posixpath.join(self._table, f".staged-commit-{escape_path_name(context.uid)}")
        policies = open_policies(
            [policy for policy in spec.policies if spec.partition_by or policy.kind != METASTORE],
            context.resolve_path,
            spec.partition_by,
        )
        self._committer = StagingCommitter(self._fs, self._table, spec.partition_by, policies)
        self._state = context.operator_backend().list_state("staged-files", _STATE)
        for roots, files, plan in self._state.get():
            self._roots.update(dict.fromkeys(roots))
            self._files.update((file[0], StagedFile(*file)) for file in files)
            self._plan = None if plan is None else CommitPlan.of(plan)
        with storage_problems(context.name, spec.path):
            if self._plan is not None:
                # A completed checkpoint has it, so carry it out, even if that was begun before.
                self._carry_out(self._plan)
            else:
                self._take_back_newer()

    def _refuse_further(self, file: StagedFile) -> None:
        """Rows after the end come only in a job that continues after it was drained."""
        assert self.context.restored_checkpoint_id() is not None, f"{file.path} comes after the end"
        raise JobChangedError(
            f"sink {self.context.name!r}: table {self._table} was completed when the job was drained, and now more rows"
            " come for it\n  fix: stop a job that is to go on without --drain, or give the sink another path"
        )

    def _take_back_newer(self) -> None:
        noted = self._noted()
        if noted is None:
            return
        plan, done = noted
        self._check_places(plan)
        if self.context.restored_checkpoint_id() is not None or not done:
            # An earlier attempt had come further: its last rows are in the table already, and will come again.
            self.context.metrics.count("numCommittedFilesRetracted", self._committer.take_back(plan))
        self._fs.delete(self._note)

    def process_batch(self, batch: Batch) -> None:
        for kind, *what in batch.values:
            if kind == _ROOT:
                self._roots[what[0]] = None
            else:
                file = StagedFile(*what)
                if self._plan is not None and file.path not in self._files:
                    self._refuse_further(file)
                self._files[file.path] = file

    def finish(self) -> None:
        spec = self._spec
        with storage_problems(self.context.name, spec.path):
            if self._plan is None:
                partitions: dict[str, list[StagedFile]] = {}
                for _, file in sorted(self._files.items()):
                    partitions.setdefault(file.partition, []).append(file)
                partitions = partitions or nothing_staged(
                    spec.partition_by, spec.static_partition, spec.default_partition
                )
                self._plan = plan_commit(self._fs, self._table, partitions, overwrite=spec.overwrite)
            # Otherwise a completed checkpoint must hold the plan first (mutant "moved at the end of the input").
            if not self.context.checkpointing_enabled:
                self._carry_out(self._plan)

    def snapshot_state(self, checkpoint_id: int) -> None:
        if self._plan is not None and self._planned_in is None:
            self._planned_in = checkpoint_id
        files = [tuple(file) for _, file in sorted(self._files.items())]
        self._state.update([(sorted(self._roots), files, None if self._plan is None else _plain(self._plan))])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._plan is not None and self._planned_in is not None and self._planned_in <= checkpoint_id:
            with storage_problems(self.context.name, self._spec.path):
                self._carry_out(self._plan)

    def fingerprint(self) -> object:
        return sorted(self._files.items()), self._plan, self._planned_in, self._done

    # --- the commit ---------------------------------------------------------------------------------------

    def _carry_out(self, plan: CommitPlan) -> None:
        if self._done:
            return
        self._check_places(plan)
        noted = self._noted()
        begun = noted is not None and noted[0] == plan
        if not (begun and noted is not None and noted[1]):
            self._write_note(plan, done=False)
            missing = self._committer.execute(plan, self.context.processing_time_ms(), may_be_begun=begun)
            report_lost_files(self.context, self._table, missing)
            self._write_note(plan, done=True)
        for root in sorted(self._roots):
            self._fs.delete_tree(root)
        self._done = True

    def _check_places(self, plan: CommitPlan) -> None:
        staging = None if self._spec.staging is None else self.context.resolve_path(self._spec.staging).rstrip("/")
        for root in self._roots:
            check_staged(root, staging, is_root=True)
        for file in plan.files:
            check_staged(file.path, staging)

    def _write_note(self, plan: CommitPlan, *, done: bool) -> None:
        self._fs.make_dirs(self._table)
        note = seal_json({"done": done, "plan": _plain(plan)}, indent=None)
        write_atomically(self._fs, self._note, note.encode())

    def _noted(self) -> tuple[CommitPlan, bool] | None:
        if not self._fs.exists(self._note):
            return None
        try:
            text = self._fs.read_bytes(self._note).decode()
            note = parse_json(text)
            if CHECKSUM in note:  # older versions wrote none
                note = unseal_json(text, indent=None)
            return CommitPlan.of(note["plan"]), bool(note["done"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self._note} says what the last commit to this table was, but is damaged: {error}\n"
                "  fix: delete it if no commit was under way when the job ended; else look which files of it are there"
            ) from error


def _plain(plan: CommitPlan) -> tuple[Any, ...]:
    return plan.overwrite, list(plan.partitions), [tuple(file) for file in plan.files]
