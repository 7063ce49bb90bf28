"""The stages of a batch in this process, without Spark: what Spark does with rows, and worse.

Rows between two stages cross as Arrow batches, in an order drawn from a seed. A real cluster delivers them in any
order, and two local cores always in the same one: a test with Spark alone would not find a missing sort. The function
of a Spark transform gets a list of dicts, and gives one.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pyarrow as pa
from pyarrow import parquet

from spark_bridge.batch_function import function_name
from spark_bridge.crossing import RowSchema
from spark_bridge.errors import SparkTransformError
from spark_bridge.pipeline.batch_stages import BatchStages
from spark_bridge.pipeline.period_files import ArrowFile, ClosedPeriod
from spark_bridge.pipeline.stage_closing import ClosingOrder, close_partition
from spark_bridge.pipeline.stage_function import Rows, StageOrder, run_partition, source_rows
from spark_bridge.pipeline.stages import BatchStage, stages_of
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskReport
from spark_bridge.result_columns import See
from spark_bridge.transform import SparkTransform
from tests.spark_bridge.transforms import kinds_of

Partitions = list[list[pa.RecordBatch]]


class LocalStages:
    """Runs batches; ``seed`` draws the order of rows."""

    def __init__(self, seed: int = 0) -> None:
        self.batches = 0
        self.flow = LocalDataflow(random.Random(seed))
        self._stages = BatchStages(self.flow, ())

    def run(self, order: BatchOrder) -> Sequence[SubtaskReport]:
        self.batches += 1
        self.flow.order = order
        return self._stages.run(order)


class LocalDataflow:
    """Moves rows in this process."""

    order: BatchOrder

    def __init__(self, shuffled: random.Random) -> None:
        self.periods: list[tuple[str, int]] = []
        """Label and number of rows of each period that a function ran on."""
        self.calls: list[str] = []
        """The label of each call of a function."""
        self.orders: list[StageOrder] = []
        """What has gone to executors."""
        self._attempts = count(1)
        self._shuffled = shuffled

    def source(self) -> Partitions:
        return [[source_rows([one.index])] for one in stages_of(self.order.plan)[0].subtasks]

    def stored(self, partitions: int) -> Partitions:
        return [[] for _ in range(partitions)]

    def run(self, frame: Partitions, order: StageOrder) -> Partitions:
        self.orders.append(order)
        rows = frame if order.stored else self._exchanged(frame, order.stage)
        return self._mapped(rows, lambda number, batches: run_partition(order, number, batches))

    def close(self, frame: Partitions, order: ClosingOrder) -> Partitions:
        rows = self._exchanged(frame, order.stage.stage)

        def close(number: int, batches: Rows) -> Rows:
            again = list(batches)
            # An attempt that Spark gives up may write all its files.
            assert list(close_partition(order, number, next(self._attempts), iter(again)))
            return close_partition(order, number, next(self._attempts), iter(again))

        return self._mapped(rows, close)

    def told(self, frame: Partitions) -> list[tuple[int, bytes]]:
        rows = [(row["subtask"], row["payload"]) for part in frame for batch in part for row in batch.to_pylist()]
        assert all(subtask < 0 for subtask, _ in rows), "a block has no receiver"
        return rows

    def _exchanged(self, frame: Partitions, stage: BatchStage) -> Partitions:
        if not stage.number:
            return frame
        rows = [batch.slice(at, 1) for part in frame for batch in part for at in range(batch.num_rows)]
        self._shuffled.shuffle(rows)
        exchanged: Partitions = [[] for _ in stage.subtasks]
        for row in rows:
            exchanged[row.column("target")[0].as_py()].append(row)
        return exchanged

    def _mapped(self, frame: Partitions, function: Callable[[int, Rows], Rows]) -> Partitions:
        return [list(function(number, iter(batches))) for number, batches in enumerate(frame)]

    def schema(self, ddl: str) -> RowSchema:
        types = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
        columns = (column.split() for column in ddl.split(", "))
        return RowSchema(ddl, None, pa.schema([(name, types[kind]) for name, kind in columns]))

    def results(self, spec: SparkTransform, closed: Sequence[ClosedPeriod], label: str, see: See) -> list[str]:
        self.periods += [(f"{one.name}: {one.label}", one.rows) for one in closed]
        self.calls.append(label)
        rows = [row for one in closed for row in parquet.read_table(one.directory).to_pylist()]
        self._shuffled.shuffle(rows)

        try:
            results = spec.fn(rows)  # type: ignore[arg-type]
        except Exception as error:
            raise SparkTransformError(label, function_name(spec.fn), (repr(error),)) from error
        see(kinds_of(results))
        self._shuffled.shuffle(results)  # type: ignore[arg-type]
        return list(_stored(results, closed[0].directory))  # type: ignore[arg-type]


def _stored(results: list[dict[str, object]], directory: str) -> Iterator[str]:
    """Two files, in which rows that belong together are apart."""
    for part, rows in enumerate((results[::2], results[1::2])):
        if rows:
            file = ArrowFile(os.path.join(directory, f"results-{part}.arrow"))
            file.add(pa.RecordBatch.from_pylist(rows))
            file.close()
            yield file.path


def is_portable(order: BatchOrder | StageOrder) -> bool:
    """Whether Spark could send an order to executors."""
    from pyspark import cloudpickle

    return bool(pickle.loads(cloudpickle.dumps(order)))
