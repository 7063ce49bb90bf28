"""The stages of a batch in this process, without Spark: what Spark does with rows, and worse.

Rows between two stages cross as Arrow batches, in an order drawn from a seed. A real cluster delivers them in any
order, and two local cores always in the same one: a test with Spark alone would not find a missing sort.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import pyarrow as pa

from spark_bridge.pipeline.stage_function import DRIVER, StageOrder, read_report, run_partition, source_rows
from spark_bridge.pipeline.stages import stages_of
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskReport


class LocalStages:
    """Runs batches; ``shuffled`` draws the order of rows."""

    def __init__(self, seed: int = 0) -> None:
        self.batches = 0
        self._shuffled = random.Random(seed)

    def run(self, order: BatchOrder) -> Sequence[SubtaskReport]:
        self.batches += 1
        plan = order.plan
        stages = stages_of(plan)
        subtask_of = {(one.vertex, one.subtask): one.index for one in plan.subtasks}
        rows: list[list[pa.RecordBatch]] = [[source_rows([one.index])] for one in stages[0].subtasks]
        for stage, following in zip(stages, [*stages[1:], None], strict=True):
            told = StageOrder(order, stage, following, (), subtask_of)
            out = [
                single
                for number, batches in enumerate(rows)
                for batch in run_partition(told, number, iter(batches))
                for single in map(batch.slice, range(batch.num_rows), [1] * batch.num_rows)
            ]
            self._shuffled.shuffle(out)
            partitions = 1 if following is None else len(following.subtasks)
            rows = [[] for _ in range(partitions)]
            for row in out:
                rows[row.column("target")[0].as_py()].append(row)
        (last,) = rows
        reports = [row.column("payload")[0].as_py() for row in last if row.column("subtask")[0].as_py() == DRIVER]
        assert len(reports) == len(last), "a block has no receiver"
        return [read_report(one) for one in reports]


def is_portable(order: BatchOrder) -> bool:
    """Whether Spark could send an order to executors."""
    from pyspark import cloudpickle

    return bool(pickle.loads(cloudpickle.dumps(order)))
