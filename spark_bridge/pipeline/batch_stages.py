"""The stages of one batch, one after the other, whatever moves the rows between them.

Rules.
* Without a Spark transform, all stages are one action.
* How many periods a transform closes is known only after the stage before it. So the plan is cut before its stage: the
  rows of that stage are stored, and the stages after it go on from the files. Each source is read once.
* The function of a transform is called on the driver, which has the session, and runs on executors. Records go from
  files to executors and back to files.
* A subtask that has failed ends the batch: no function runs on the rows of half a stage.
* The rows of a DataFrame that is a source are stored before the first batch, beside the checkpoints.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.graph.plan import ExecutionPlan, OperatorPlan, VertexPlan
from operators.sources import reading_from, source_of
from spark_bridge.crossing import RowSchema
from spark_bridge.errors import SparkBridgeError
from spark_bridge.frames import FrameSource
from spark_bridge.period_column import check_labels, joint_label
from spark_bridge.pipeline.period_files import ClosedPeriod, PeriodResults
from spark_bridge.pipeline.stage_closing import STORED, ClosingOrder, StoredPartition
from spark_bridge.pipeline.stage_function import DRIVER, StageOrder, read_report
from spark_bridge.pipeline.stages import stages_of, transform_of
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskReport
from spark_bridge.result_columns import See
from spark_bridge.sinks import ForeachBatchOperator
from spark_bridge.transform import SparkTransform, SparkTransformOperator
from state_backends.codec import RegisteredType
from state_backends.files import LocalFileSystem
from state_backends.snapshots import WORKING_DIR_NAME, CheckpointStorage

# Below the directory that every start empties, also one in the simulator: a driver may die.
BETWEEN_STAGES = f"{WORKING_DIR_NAME}/between-stages"
"""The directory with the files of a batch, beside the checkpoints."""
FRAMES = f"{WORKING_DIR_NAME}/frames"
"""The directory with the rows of DataFrames that are sources, beside it. A run deletes it when it ends."""


class Dataflow(Protocol):
    """What moves rows. A *frame* is rows in partitions, not computed yet."""

    def source(self) -> Any:
        """The frame with which sources begin a batch."""

    def stored(self, partitions: int) -> Any:
        """A frame with so many partitions; their rows are in files."""

    def run(self, frame: Any, order: StageOrder) -> Any:
        """The frame after a stage."""

    def close(self, frame: Any, order: ClosingOrder) -> Any:
        """The frame after the first pass over a stage."""

    def told(self, frame: Any) -> list[tuple[int, bytes]]:
        """Compute a frame: the ``subtask`` and the ``payload`` of its rows for the driver."""

    def schema(self, ddl: str) -> RowSchema:
        """The schema of the rows of a transform."""

    def results(self, spec: SparkTransform, closed: Sequence[ClosedPeriod], label: str, see: See) -> Sequence[str]:
        """Call the function of a transform once, on one period or on several: the files of its results, whose columns
        ``see`` is given.

        Raises :class:`SparkBridgeError` when it fails.
        """


class BatchStages:
    """Runs the subtasks of a batch. ``types``: the classes of the job that state may contain."""

    def __init__(self, flow: Dataflow, types: Sequence[RegisteredType]) -> None:
        self._flow = flow
        self._types = tuple(types)

    def run(self, order: BatchOrder) -> Sequence[SubtaskReport]:
        """The reports of all subtasks; of a batch that fails, those there are."""
        # Beside the checkpoints: all executors see it.
        job_dir = CheckpointStorage(LocalFileSystem(), order.storage_dir, order.plan.job_name).job_dir
        directory = os.path.join(job_dir, BETWEEN_STAGES)
        frames = os.path.join(job_dir, FRAMES, str(order.incarnation))
        try:
            return self._run(replace(order, plan=without_functions(order.plan, frames)), order.plan, directory)
        finally:
            # Files of a process that has died go, too.
            shutil.rmtree(directory, ignore_errors=True)

    def _run(self, order: BatchOrder, plan: ExecutionPlan, directory: str) -> Sequence[SubtaskReport]:
        """``plan``: with functions; that of ``order`` has none."""
        flow = self._flow
        specs = {vertex.index: spec for vertex in plan.vertices if (spec := transform_of(vertex)) is not None}
        subtask_of = {(one.vertex, one.subtask): one.index for one in plan.subtasks}
        stages = stages_of(plan)
        frame, reports = flow.source(), []
        for stage, following in zip(stages, [*stages[1:], None], strict=True):
            told = StageOrder(order, stage, following, self._types, subtask_of)
            here = {one.index: specs[one.vertex] for one in stage.subtasks if one.vertex in specs}
            if here:
                place = os.path.join(directory, f"{order.incarnation}-{order.attempt}-{stage.number}")
                schemas = {subtask: flow.schema(spec.rows_schema) for subtask, spec in here.items()}
                earlier, stored = self._stored(flow.close(frame, ClosingOrder(told, place, schemas)))
                reports += earlier
                if any(report.error for report in reports):
                    return reports
                results, failed = self._results(here, stored)
                if failed is not None:
                    return [*reports, failed]
                told = replace(told, stored=tuple(one.path for one in stored), results=results)
                frame = flow.stored(len(stored))
            frame = flow.run(frame, told)
        return [*reports, *(read_report(payload) for _, payload in flow.told(frame))]

    def _stored(self, frame: Any) -> tuple[list[SubtaskReport], list[StoredPartition]]:
        rows = self._flow.told(frame)
        reports = [read_report(payload) for subtask, payload in rows if subtask == DRIVER]
        stored = [pickle.loads(payload) for subtask, payload in rows if subtask == STORED]
        return reports, sorted(stored, key=lambda one: one.number)

    def _results(
        self, specs: Mapping[int, SparkTransform], stored: Sequence[StoredPartition]
    ) -> tuple[dict[int, tuple[PeriodResults, ...]], SubtaskReport | None]:
        """Results by subtask, or the report of the first function that has failed."""
        found: dict[int, tuple[PeriodResults, ...]] = {}
        for partition in stored:
            for closed in _calls(specs, partition.closed):
                subtask, name, labels = closed[0].subtask, closed[0].name, [one.label for one in closed]
                try:
                    check_labels(labels, name)
                    columns: list[tuple[str, str]] = []
                    label = f"{name}: {joint_label(labels)}"
                    files = tuple(self._flow.results(specs[subtask], closed, label, columns.extend))
                except SparkBridgeError as error:
                    return found, SubtaskReport(subtask, error=error)
                found[subtask] = (*found.get(subtask, ()), PeriodResults(closed, files, columns))
        return found, None


def _calls(specs: Mapping[int, SparkTransform], closed: tuple[ClosedPeriod, ...]) -> Sequence[tuple[ClosedPeriod, ...]]:
    """The periods of one subtask, by the call of the function that they belong to."""
    if closed and specs[closed[0].subtask].period_column is not None:
        return [closed]
    return [(one,) for one in closed]


def without_functions(plan: ExecutionPlan, frames: str | None = None) -> ExecutionPlan:
    """What executors get of a plan. DataFrames cannot travel, nor can functions of DataFrames or of batches, which may
    hold some: only the driver has them. ``frames``: the directory for the rows of sources, ``None``: without any."""

    def stripped(vertex: VertexPlan) -> VertexPlan:
        place = None if frames is None else os.path.join(frames, str(vertex.index))
        return replace(vertex, operators=tuple(_without_function(operator, place) for operator in vertex.operators))

    return replace(plan, vertices=tuple(map(stripped, plan.vertices)))


def _without_function(operator: OperatorPlan, place: str | None) -> OperatorPlan:
    source: Any = source_of(operator.factory)
    # A source around it has nothing to do in batches.
    source = getattr(source, "inner", source)
    if isinstance(source, FrameSource):
        return replace(operator, factory=reading_from(operator.factory, source.on_executors(operator.name, place)))
    made = operator.factory()
    if isinstance(made, SparkTransformOperator):
        return replace(operator, factory=replace(made.spec, fn=_only_on_the_driver).create_operator)
    if isinstance(made, ForeachBatchOperator):
        return replace(operator, factory=made.sink.on_executors().create_operator)
    return operator


def _only_on_the_driver(frame: Any) -> Any:
    raise AssertionError("results come from files")
