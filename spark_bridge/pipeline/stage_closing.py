"""The first pass over a stage with Spark transforms: one partition of it, as Spark runs it (``mapInArrow``).

It stores the rows of the partition, and the rows of each period that the watermark closes. The driver gets reports of
earlier stages, and where things were stored; it gets no record.

A file belongs to one attempt at a task. The driver hears only of files of attempts that Spark has accepted.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from engine.graph.plan import ExecutionPlan, SubtaskPlan
from spark_bridge.crossing import RowSchema
from spark_bridge.pipeline.packed_elements import unpack
from spark_bridge.pipeline.period_files import ArrowFile, ClosedPeriod, PeriodWriter
from spark_bridge.pipeline.stage_function import (
    DRIVER,
    Rows,
    StageOrder,
    StageRow,
    in_order,
    register,
    report_bytes,
    row_batches,
    rows_of,
)
from spark_bridge.pipeline.subtask_batch import SubtaskBatch, SubtaskReport

STORED = -2
"""``subtask`` of the row that tells the driver what was stored."""


@dataclass(frozen=True, slots=True)
class ClosingOrder:
    """``directory``: of the batch's files, which all executors see. ``schemas``: of the rows of transforms, by the
    index of their subtask."""

    stage: StageOrder
    directory: str
    schemas: Mapping[int, RowSchema]


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """``path``: the rows of partition ``number``, empty when it has none."""

    number: int
    path: str
    closed: tuple[ClosedPeriod, ...]


def closing_function(order: ClosingOrder) -> Callable[[Rows], Rows]:
    """The function of the first pass for ``mapInArrow``."""

    def run(batches: Rows) -> Rows:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        return close_partition(order, context.partitionId(), context.taskAttemptId(), batches)

    return run


def close_partition(order: ClosingOrder, number: int, attempt: int, batches: Rows) -> Rows:
    """Rows for the driver. ``attempt``: no other attempt at any task has this number."""
    import pyarrow.compute as pc

    register(order.stage.types)
    subtask = order.stage.stage.subtasks[number]
    directory = os.path.join(order.directory, f"task-{attempt}")
    file, mine = ArrowFile(os.path.join(directory, "rows.arrow")), []
    for batch in batches:
        stored = batch.filter(pc.not_equal(batch.column("subtask"), DRIVER))
        if stored.num_rows:
            file.add(stored)
        for row in rows_of(batch):
            if row.subtask == DRIVER:
                yield from row_batches([row])
            elif row.subtask == subtask.index and subtask.index in order.schemas:
                mine.append(row)
    file.close()
    yield from row_batches(_closed(order, number, mine, file, directory))


def _closed(
    order: ClosingOrder, number: int, rows: list[StageRow], file: ArrowFile, directory: str
) -> Iterator[StageRow]:
    subtask = order.stage.stage.subtasks[number]
    closed: tuple[ClosedPeriod, ...] = ()
    if subtask.index in order.schemas:
        writer = PeriodWriter(directory, subtask.index, order.schemas[subtask.index])
        error = _feed(order, subtask, rows, writer)
        if error is not None:
            report = SubtaskReport(subtask.index, error=error)
            yield StageRow(0, DRIVER, subtask.index, 0, report_bytes(report))
            return
        closed = tuple(writer.closed)
    stored = StoredPartition(number, file.path if file.is_there else "", closed)
    yield StageRow(0, STORED, subtask.index, 0, pickle.dumps(stored))


def _feed(order: ClosingOrder, subtask: SubtaskPlan, rows: list[StageRow], writer: PeriodWriter) -> Exception | None:
    """Give the transform its rows. Operators that are chained to it must not see them twice, so it runs alone."""
    plan = order.stage.batch.plan
    alone = replace(order.stage.batch, plan=_without_followers(plan, subtask))
    part = None
    try:
        part = SubtaskBatch(alone, replace(subtask, output_channels=()), writer)
        for row in in_order(rows):
            part.take(row.channel, unpack(row.payload, plan.edges[plan.channels[row.channel].edge].name))
        part.finish_rows()
    except AssertionError:
        raise
    except Exception as error:
        return error
    finally:
        if part is not None:
            part.close()
    return part.report.error


def _without_followers(plan: ExecutionPlan, subtask: SubtaskPlan) -> ExecutionPlan:
    vertex = plan.vertices[subtask.vertex]
    head = replace(vertex.operators[0], chained_outputs=(), edge_outputs=())
    lone = replace(vertex, operators=(head,), output_edges=())
    return replace(plan, vertices=tuple(lone if one is vertex else one for one in plan.vertices))
