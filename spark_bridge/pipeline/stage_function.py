"""One partition of one stage, as Spark runs it: rows in, rows out (``mapInArrow``).

A row is a packed block of elements of one channel on its way to a subtask of a later stage, or the report of a subtask
on its way to the driver. Rows for later stages pass through.

Rules.
* The rows of a shuffle come in any order. A subtask takes its blocks by sequence number, the channels in turn, so its
  output is the same whenever it runs again.
* Nothing that differs between two attempts at a task is in a row: a shuffle that is computed again would not fit.
* A worker may go on after its driver has died, or Spark has given it up. It begins no subtask of a batch that is over:
  restoring would set files aside that a newer checkpoint holds.
* A function may break the rule of equal attempts. So a report has checksums of what went over each channel, and
  ``checksums`` compares.
"""

from __future__ import annotations

import gc
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, cast

from engine.elements.batch import Batch
from engine.elements.errors import JobFailedError, StorageError
from spark_bridge.pipeline.checksums import Sent
from spark_bridge.pipeline.packed_elements import Element, packed_within, unpack
from spark_bridge.pipeline.period_files import PeriodReader, PeriodResults, stored_batches
from spark_bridge.pipeline.stages import BatchStage
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskBatch, SubtaskReport
from spark_bridge.pipeline.turns import in_turn, writes_elsewhere
from state_backends.codec import RegisteredType, default_codec
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage

if TYPE_CHECKING:
    import pyarrow as pa

ROW_SCHEMA = "target int, subtask int, channel int, sequence int, payload binary"
"""``target``: the partition of the next stage; ``subtask``: the one the block is for, :data:`DRIVER` for a report;
``channel``: its index in the plan; ``sequence``: the number of the block on the channel."""

DRIVER = -1
_BLOCK_RECORDS = 4_096
_BLOCKS_A_BATCH = 32
_modules = 0
"""How many there were when they were last set aside, in this worker."""
_MOST_BYTES = 16 * 1024 * 1024
"""Spark holds a row in memory several times over."""


@dataclass(frozen=True, slots=True)
class StageOrder:
    """What every partition of a stage gets. ``types``: the classes of the job that state may contain. ``tell``: is told
    what each attempt at a subtask has sent. After a first pass: ``stored``, by partition, the file with its rows, empty
    for none; ``results``, by subtask, what the function of its transform has given."""

    batch: BatchOrder
    stage: BatchStage
    following: BatchStage | None
    types: tuple[RegisteredType, ...]
    subtask_of: dict[tuple[int, int], int]
    """The index of a subtask by its vertex and number."""
    tell: Callable[[Sent], None] | None = None
    stored: tuple[str, ...] = ()
    results: Mapping[int, tuple[PeriodResults, ...]] = field(default_factory=dict)


Rows = Iterator["pa.RecordBatch"]


def stage_function(order: StageOrder) -> Callable[[Rows], Rows]:
    """The function of a stage for ``mapInArrow``."""

    def run(batches: Rows) -> Rows:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        keep_modules()
        return run_partition(order, context.partitionId(), batches)

    return run


def keep_modules() -> None:
    """Spare the collector the modules, again when there are more. PySpark has it look at everything after each task: at
    tens of thousands of objects, several times what a small task takes itself.

    Rule: what earlier tasks have left behind is collected first. A worker keeps no more than one of them.
    """
    global _modules  # noqa: PLW0603 (a worker runs one task after the other)
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def run_partition(order: StageOrder, number: int, batches: Rows) -> Rows:
    """The output of one partition of a stage. ``number``: its own; which partition of the source a row is in plays no
    role."""
    if order.stored:
        batches = stored_batches(order.stored[number]) if order.stored[number] else iter(())
    return _Partition(order).run(number, batches)


@dataclass(slots=True)
class StageRow:
    """One row, see :data:`ROW_SCHEMA`."""

    target: int
    subtask: int
    channel: int
    sequence: int
    payload: bytes


class _Partition:
    def __init__(self, order: StageOrder) -> None:
        self._order = order
        self._plan = order.batch.plan
        self._open: dict[int, list[Element]] = {}
        self._records: dict[int, int] = {}
        self._sequence: dict[int, int] = {}
        self._checksums: dict[int, int] = {}

    def run(self, number: int, batches: Rows) -> Rows:
        register(self._order.types)
        stage, mine, waiting = self._order.stage, [], []
        for batch in batches:
            for row in rows_of(batch):
                if stage.number == 0:
                    mine.append(row.subtask)
                elif any(row.subtask == one.index for one in stage.subtasks):
                    waiting.append(row)
                else:
                    yield from row_batches([self._passed_on(row)])
        if stage.number:
            # A partition without rows has a subtask nevertheless: it takes part in the checkpoint.
            mine = [stage.subtasks[number].index]
        for subtask in mine:
            # Nothing of the subtask happens before its rows are asked for.
            rows = row_batches(self._run_subtask(subtask, [row for row in waiting if row.subtask == subtask]))
            if writes_elsewhere(self._plan.vertices[self._plan.subtasks[subtask].vertex]):
                yield from in_turn(self._order.batch, subtask, rows)
            else:
                yield from rows

    def _passed_on(self, row: StageRow) -> StageRow:
        return StageRow(self._target(row.subtask, row.sequence), row.subtask, row.channel, row.sequence, row.payload)

    def _target(self, subtask: int, spread: int) -> int:
        following = self._order.following
        if following is None:
            return 0
        return spread % len(following.subtasks) if subtask == DRIVER else following.partition_of(subtask)

    def _run_subtask(self, index: int, rows: list[StageRow]) -> Iterator[StageRow]:
        subtask = self._plan.subtasks[index]
        if index in self._order.batch.over:
            return
        part = None
        try:
            _check_running(self._order.batch)
            part = SubtaskBatch(self._order.batch, subtask, PeriodReader(self._order.results.get(index, ())))
            received = part.report.received_checksums
            for row in in_order(rows):
                received[row.channel] = zlib.crc32(row.payload, received.get(row.channel, 0))
                part.take(row.channel, unpack(row.payload, self._edge(row.channel)))
                yield from self._blocks(part)
            for _ in part.finish():
                yield from self._blocks(part)
            yield from self._blocks(part)
            report = part.report
            yield from self._rest()
            mine = (channel for _, channels in subtask.output_channels for channel in channels)
            report.sent_checksums = {one: self._checksums[one] for one in mine if one in self._checksums}
            if self._order.tell is not None:
                whole = zlib.crc32(repr(report.sent_checksums).encode())
                self._order.tell({(self._order.batch.barrier.checkpoint_id, index): frozenset([whole])})
        except AssertionError:
            raise
        except Exception as error:
            report = SubtaskReport(index, error=error)
        finally:
            if part is not None:
                part.close()
        yield StageRow(self._target(DRIVER, index), DRIVER, index, 0, report_bytes(report))

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _blocks(self, part: SubtaskBatch) -> Iterator[StageRow]:
        for channel, elements in part.drained():
            self._open.setdefault(channel, []).extend(elements)
            records = self._records.get(channel, 0) + sum(len(one) for one in elements if isinstance(one, Batch))
            if records >= _BLOCK_RECORDS:
                yield from self._flushed(channel)
                records = 0
            self._records[channel] = records

    def _rest(self) -> Iterator[StageRow]:
        for channel, elements in list(self._open.items()):
            if elements:
                yield from self._flushed(channel)

    def _flushed(self, channel: int) -> Iterator[StageRow]:
        elements, self._open[channel] = list(_joined(self._open[channel])), []
        for packed in packed_within(elements, self._edge(channel), _MOST_BYTES):
            yield self._block(channel, packed)

    def _block(self, channel: int, payload: bytes) -> StageRow:
        sequence = self._sequence.get(channel, 0)
        self._sequence[channel] = sequence + 1
        self._checksums[channel] = zlib.crc32(payload, self._checksums.get(channel, 0))
        plan = self._plan.channels[channel]
        subtask = self._order.subtask_of[plan.receiver_vertex, plan.receiver_subtask]
        return StageRow(self._target(subtask, sequence), subtask, channel, sequence, payload)

    def _edge(self, channel: int) -> str:
        return self._plan.edges[self._plan.channels[channel].edge].name


def _check_running(order: BatchOrder) -> None:
    """Raises :class:`StorageError` when the batch is over, or another driver has taken over the storage."""
    storage = CheckpointStorage(LocalFileSystem(), order.storage_dir, order.plan.job_name)
    newest, incarnation = max(storage.list_checkpoints(), default=0), storage.incarnation()
    if incarnation != order.incarnation or newest >= order.barrier.checkpoint_id:
        raise StorageError(
            f"the batch of checkpoint {order.barrier.checkpoint_id} and incarnation {order.incarnation} is over:"
            f" {storage.job_dir} has checkpoint {newest} and incarnation {incarnation}\n"
            "  another process has taken over this storage; fix: let one process at a time run the job"
        )


def _joined(elements: Iterable[Element]) -> Iterator[Element]:
    """The same elements; rows of batches without an event between them are one batch."""
    for shape, some in groupby(elements, _shape):
        if shape is None:
            yield from some
            continue
        batches = cast("list[Batch]", list(some))
        values, timestamps, keys = (
            [item for batch in batches for item in getattr(batch, name)] if has else None
            for name, has in zip(("values", "timestamps", "keys"), (True, *shape), strict=True)
        )
        yield Batch(values or [], timestamps, keys)


def _shape(element: Element) -> tuple[bool, bool] | None:
    """Whether rows have timestamps and keys; ``None``: it has no rows."""
    return (element.timestamps is not None, element.keys is not None) if type(element) is Batch else None


# -- rows and Arrow ---------------------------------------------------------------------------------------------------


def in_order(rows: Iterable[StageRow]) -> list[StageRow]:
    """The rows of one subtask in the order in which it takes them: channels in turn, so that none is far ahead of the
    others in event time."""
    return sorted(rows, key=lambda row: (row.sequence, row.channel))


def rows_of(batch: pa.RecordBatch) -> Iterator[StageRow]:
    """The rows of an Arrow batch."""
    columns = (column.to_pylist() for column in batch.columns)
    for values in zip(*columns, strict=True):
        yield StageRow(*values)


def source_rows(subtasks: Iterable[int]) -> pa.RecordBatch:
    """The rows with which sources begin a batch."""
    return _arrow([StageRow(0, subtask, 0, 0, b"") for subtask in subtasks])


def row_batches(rows: Iterable[StageRow]) -> Rows:
    """Rows as Arrow batches, some in each."""
    some: list[StageRow] = []
    for row in rows:
        some.append(row)
        if len(some) == _BLOCKS_A_BATCH:
            yield _arrow(some)
            some = []
    if some:
        yield _arrow(some)


def _arrow(rows: list[StageRow]) -> pa.RecordBatch:
    import pyarrow as pa

    numbers = ("target", "subtask", "channel", "sequence")
    arrays = [pa.array([getattr(row, name) for row in rows], pa.int32()) for name in numbers]
    arrays.append(pa.array([row.payload for row in rows], pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, names=[*numbers, "payload"])


# -- reports and types ------------------------------------------------------------------------------------------------


def report_bytes(report: SubtaskReport) -> bytes:
    """A report for the driver. An error that cannot travel goes by its text. The report is not used any more."""
    error, report.error = report.error, None
    if error is None:
        return pickle.dumps((report, None))
    try:
        told = pickle.dumps((report, (type(error), error.args, vars(error))))
        read_report(told)
    except Exception:
        # Its attributes are the user's: a record, a cause.
        told = pickle.dumps((report, (JobFailedError, (f"{type(error).__name__}: {error}",), {})))
    return told


def read_report(told: bytes) -> SubtaskReport:
    """The report that :func:`report_bytes` wrote."""
    report, error = pickle.loads(told)
    if error is not None:
        kind, arguments, attributes = error
        report.error = made = kind.__new__(kind)
        made.args = arguments
        made.__dict__ |= attributes
    assert isinstance(report, SubtaskReport)
    return report


def register(types: Iterable[RegisteredType]) -> None:
    """Make the classes of a job known to the codec of this process."""
    registry = default_codec().registry
    for one in types:
        if registry.for_class(one.cls) is None:
            registry.register_type(one.code, one.cls, one.to_state, one.from_state, one.version, one.fields)
