"""The job under test, and the world of one run of it: files, outputs and inputs that no other run sees.

A job's plan is made once; each case gets it with its own sinks. A sink in memory takes part by two methods of the
object whose ``create_operator`` makes its operators:

* ``fresh()``           another sink like it, empty;
* ``committed_rows()``  the rows that a reader sees now, as text, in the order of commits.

Sinks of files write to the world's file system and are read as a reader would read them
(:mod:`engine.explore.run.file_outputs`). The input files of a job are read from disk once, and each world has an
unchanged copy. Everything else (Spark, the network) is not isolated, and not suited for this.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobGraphError
from engine.elements.source import Source, SourceContext, SplitReader
from engine.explore.cases import Ranges
from engine.explore.run.expected import Expected
from engine.explore.run.file_outputs import FileOutput, Rows, announced, directory_in, output_of
from engine.faults.external import CountingReader
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan, OperatorPlan
from operators.files.formats import list_files
from operators.files.reading import FileSource
from operators.log.connectors import LogSink, LogSource
from operators.log.disk import DiskLog
from operators.sources import reading_from, source_of
from operators.table.partitions import PartitionCommitterSpec
from state_backends.files import FileSystem, LocalFileSystem, MemoryFileSystem, write_atomically

if TYPE_CHECKING:
    from engine.explore.run.measure import Measure
    from engine.explore.run.references import Reference, References

OUTPUT_DIR = "/out"
CHECKPOINTS_DIR = "/checkpoints"


@runtime_checkable
class SinkInMemory(Protocol):
    """A sink whose committed output is in this process."""

    def create_operator(self) -> Any:
        """See :class:`operators.basic.simple_sinks.Sink`."""

    def fresh(self) -> SinkInMemory:
        """Another one, with nothing in it."""

    def committed_rows(self) -> list[str]:
        """The rows that a reader sees, as text, in the order of commits."""


@dataclass(slots=True)
class World:
    """Everything that outlives the processes of one case. ``checkpoints``: the disk of checkpoint storage; ``files``:
    of sources and sinks; ``sinks``: by uid, those in memory; ``file_outputs``: by uid, those in files; ``announcers``:
    by uid, the committers that announce partitions of a table."""

    checkpoints: FileSystem = field(default_factory=MemoryFileSystem)
    files: FileSystem = field(default_factory=MemoryFileSystem)
    sinks: dict[str, SinkInMemory] = field(default_factory=dict)
    file_outputs: dict[str, FileOutput] = field(default_factory=dict)
    announcers: dict[str, PartitionCommitterSpec] = field(default_factory=dict)
    logs: dict[str, DiskLog] = field(default_factory=dict)
    """By path: logs on disk that sinks write to."""

    @property
    def file_sinks(self) -> dict[str, str]:
        """By uid, the directory of each sink of files."""
        return {uid: output.directory for uid, output in self.file_outputs.items()}

    def committed(self) -> dict[str, list[str]]:
        """The rows that readers see now: ``uid`` or ``uid/bucket`` -> rows; those of files are sorted. Raises
        :class:`engine.elements.errors.StorageError` when they find a torn file."""
        output = {uid: sink.committed_rows() for uid, sink in self.sinks.items()}
        return output | self.committed_in_files()

    def committed_in_files(self) -> dict[str, list[str]]:
        """The rows that are in files, and their announcements."""
        output: dict[str, list[str]] = {}
        tables: dict[str, Rows] = {}
        for uid, found in self.file_outputs.items():
            tables[found.directory] = buckets = found.rows(self.files)
            output.update((f"{uid}/{bucket}" if bucket else uid, list(rows)) for bucket, rows in buckets.items())
        for uid, spec in self.announcers.items():
            directory = directory_in(OUTPUT_DIR, spec.path)
            output[uid] = announced(spec, self.files, directory, tables.get(directory, {}))
        return output

    def durable_in_files(self) -> dict[str, list[str]]:
        """As :meth:`committed_in_files`, but as readers would see it if the machine lost power now and restarted."""
        if not isinstance(self.files, MemoryFileSystem):
            return self.committed_in_files()
        return replace(self, files=self.files.survivors()).committed_in_files()


class Subject:
    """A job under test."""

    def __init__(
        self,
        build: Callable[[int | None], Job],
        *,
        label: str = "job",
        path: str | None = None,
        params: Mapping[str, str] | None = None,
        job_digest: str = "",
        expected: Expected | None = None,
    ) -> None:
        """``build(parallelism)`` makes the job, ``None`` = with its own parallelism; ``path`` and ``params`` name the
        file of the job, for tokens and commands, ``job_digest`` the content of that file when it was loaded, and
        ``expected`` the output that the file says the job commits."""
        self.label, self.path, self.params, self.job_digest = label, path, dict(params or {}), job_digest
        self.expected = expected
        self._build = build
        self._plans: dict[int | None, ExecutionPlan] = {}
        self._references: References | None = None
        self._measure: Measure | None = None
        self.kept: dict[object, Any] = {}
        """A store for judges of its runs: facts about the job, by a key of theirs."""
        self._inputs: dict[tuple[str, ...], dict[str, bytes]] = {}
        """By the paths of a source: its files, as they were when the first case began."""

    def fresh(self) -> Subject:
        """The same job, of which nothing is known yet."""
        return Subject(
            self._build,
            label=self.label,
            path=self.path,
            params=self.params,
            job_digest=self.job_digest,
            expected=self.expected,
        )

    def plan(self, parallelism: int | None = None) -> ExecutionPlan:
        """The plan of the job, made once for each parallelism."""
        plan = self._plans.get(parallelism)
        if plan is None:
            plan = self._plans[parallelism] = self._build(parallelism).plan()
        return plan

    def in_world(self, plan: ExecutionPlan, world: World, dropped: Mapping[str, Ranges] | None = None) -> ExecutionPlan:
        """The plan with the sinks of a world, and without the dropped records."""
        return plan.with_operators(lambda operator: self._operator_in(operator, world, dropped or {}))

    def _operator_in(self, operator: OperatorPlan, world: World, dropped: Mapping[str, Ranges]) -> OperatorPlan:
        factory: Any = operator.factory
        owner = getattr(factory, "__self__", None)
        # One method is asked for first: a check of a whole protocol takes a hundred times as long.
        if hasattr(owner, "committed_rows") and isinstance(owner, SinkInMemory):
            sink = world.sinks.get(operator.uid)
            if sink is None:
                sink = world.sinks[operator.uid] = owner.fresh()
                if isinstance(sink, LogSink):
                    sink.live_in(world.files, OUTPUT_DIR, world.logs)
            return replace(operator, factory=sink.create_operator)
        if isinstance(owner, PartitionCommitterSpec):
            spec = world.announcers.get(operator.uid)
            if spec is None:
                spec = world.announcers[operator.uid] = owner.fresh()
            return replace(operator, factory=spec.create_operator)
        output = output_of(owner)
        if output is not None:
            world.file_outputs[operator.uid] = FileOutput(directory_in(OUTPUT_DIR, output.path), output)
            return operator
        source = source_of(factory)
        if source is not None:
            # A listening source may be wrapped around it.
            files = getattr(source, "inner", source)
            if isinstance(files, FileSource):
                self._put_inputs(files.paths, world.files)
            elif isinstance(source, LogSource):
                self._put_inputs((source.path,), world.files)
            # The name of a split may be like a path, with slashes of its own.
            prefix = f"{operator.uid}/"
            mine = {key.removeprefix(prefix): ranges for key, ranges in dropped.items() if key.startswith(prefix)}
            if mine:
                return replace(operator, factory=reading_from(factory, PrunedSource(source, mine)))
        return operator

    def _put_inputs(self, paths: tuple[str, ...], files: FileSystem) -> None:
        inputs = self._inputs.get(paths)
        if inputs is None:
            disk = LocalFileSystem()
            try:
                inputs = {path: disk.read_bytes(path) for path in list_files(disk, paths)}
            except (ConfigurationError, OSError):
                # They may be in the world already; if not, the source reports the missing ones.
                inputs = {}
            self._inputs[paths] = inputs
        for path, content in inputs.items():
            if not files.exists(path):
                _put_durably(files, path, content)

    @property
    def is_scalable(self) -> bool:
        """Whether the parallelism given to ``build`` has an effect: some operator names none of its own."""
        try:
            one, two = self.plan(1), self.plan(2)
        except JobGraphError:
            return False
        return [vertex.parallelism for vertex in one.vertices] != [vertex.parallelism for vertex in two.vertices]

    def reference(self, dropped: Mapping[str, Ranges] | None = None) -> Reference:
        """The rows that the job must commit, computed once for each input. Raises
        :class:`engine.elements.errors.ConfigurationError` when it does not end even without faults."""
        if self._references is None:
            # Not at the top: computing a reference runs the job, and a run needs a subject.
            from engine.explore.run.references import References

            self._references = References(self)
        return self._references.of(dropped)

    def measure(self) -> Measure:
        """The size of the job, computed once. Raises :class:`engine.elements.errors.ConfigurationError` when it does
        not end without faults."""
        if self._measure is None:
            # Not at the top: measuring runs the job.
            from engine.explore.run.measure import Measure

            self._measure = Measure.of(self)
        return self._measure


def _put_durably(files: FileSystem, path: str, content: bytes) -> None:
    directory = posixpath.dirname(path)
    if directory:
        files.make_dirs(directory)
    write_atomically(files, path, content)
    while directory:
        parent = posixpath.dirname(directory)
        if parent == directory:
            return
        files.fsync_dir(parent)
        directory = parent


class PrunedSource:
    """A source without some records of some splits, by their number in the split (from 0).

    Positions are pairs: the inner one, and how many records of the split were read so far, omitted ones included.
    """

    def __init__(self, source: Source, dropped: Mapping[str, Ranges]) -> None:
        self._source = source
        self._dropped = dropped

    def splits(self, context: SourceContext) -> Sequence[str]:
        return self._source.splits(context)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """Open the split at a position of this source."""
        inner, number = (None, 0) if position is None else (position[0], position[1])
        reader = self._source.open_split(split, inner, context)
        return _PrunedReader(reader, number, self._dropped.get(split, ()))


class _PrunedReader(CountingReader):
    def __init__(self, reader: SplitReader, number: int, dropped: Ranges) -> None:
        super().__init__(reader, number)
        self._dropped = dropped

    def read(self, max_records: int) -> Batch | None:
        """The remaining records; an empty batch means, as always, that there are none now."""
        while True:
            first, batch = self.number, super().read(max_records)
            if batch is None or not len(batch):
                return batch
            kept = [at for at in range(len(batch)) if not self._is_dropped(first + at)]
            if kept:
                return batch if len(kept) == len(batch) else batch.take(kept)

    def _is_dropped(self, number: int) -> bool:
        return any(first <= number < end for first, end in self._dropped)
