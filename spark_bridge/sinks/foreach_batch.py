"""``ForeachBatchSink(fn)``: a function gets all rows of a checkpoint once that has completed, as in Spark's own
``foreachBatch``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.partitioner import GlobalPartitioner, Partitioner
from spark_bridge.batch_function import function_name
from spark_bridge.crossing import rows_on_spark
from spark_bridge.errors import SparkBridgeError
from spark_bridge.sinks.batch_sink import BatchSinkOperator


class ForeachBatchSink:
    """Calls ``fn(batch, checkpoint_id)`` for each completed checkpoint with rows, in order, in the process that
    coordinates the job.

    ``schema``  a DDL string: ``batch`` is a DataFrame then, of this process's session; otherwise the list of records.

    After a failure the function may get a batch again, with the same number and, if the job is deterministic, the same
    rows. So write under the number (a transaction, a directory, an upsert), and the effect is exactly-once. Rows wait
    in state until then; the sink has one subtask. With ``--on spark`` the function stays on the driver, and may hold
    what cannot travel, such as a session.
    """

    name = "foreach-batch-sink"
    delivery = "exactly-once"
    parallelism = 1

    def __init__(self, fn: Callable[[Any, int], object], *, schema: str | None = None) -> None:
        if not callable(fn):
            raise SparkBridgeError(f"ForeachBatchSink: fn is {fn!r}: give a function of a batch and a checkpoint id")
        declared: object = schema
        if declared is not None and not (isinstance(declared, str) and declared.strip()):
            raise SparkBridgeError(f"ForeachBatchSink: schema= is {schema!r}: give a DDL string, or None for records")
        self.fn = fn
        self.schema = schema

    @property
    def partitioner(self) -> Partitioner:
        return GlobalPartitioner()

    def create_operator(self) -> ForeachBatchOperator:
        return ForeachBatchOperator(self)

    def on_executors(self) -> ForeachBatchSink:
        """The same without its function, which may hold what cannot travel: executors gather rows only."""
        return ForeachBatchSink(_only_on_the_driver, schema=self.schema)


def _only_on_the_driver(batch: Any, checkpoint_id: int) -> None:
    raise AssertionError(f"executors gather rows; the driver has the function for checkpoint {checkpoint_id}")


class ForeachBatchOperator(BatchSinkOperator):
    """``sink``: what describes it."""

    def __init__(self, sink: ForeachBatchSink) -> None:
        super().__init__(lambda: _FunctionTarget(sink))
        self.sink = sink


class _FunctionTarget:
    def __init__(self, sink: ForeachBatchSink) -> None:
        self._sink = sink
        self._rows: list[Any] = []

    def open(self, operator: Operator) -> None:
        self._operator = operator

    def check_start(self, restored_id: int | None) -> None:
        """The function knows what it has written."""

    def take(self, batch: Batch) -> None:
        self._rows.extend(batch.values)

    def stage(self, checkpoint_id: int) -> Any:
        rows, self._rows = self._rows, []
        return rows or None

    def commit(self, subtask: int, checkpoint_id: int, staged: Any) -> None:
        sink = self._sink
        try:
            if sink.schema is None:
                sink.fn(list(staged), checkpoint_id)
                return
            with rows_on_spark(staged, sink.schema) as frame:
                sink.fn(frame, checkpoint_id)
        except SparkBridgeError:
            raise
        except Exception as error:
            what = f"function {function_name(sink.fn)}"
            raise self._operator.user_error(what, f"{len(staged)} rows of checkpoint {checkpoint_id}", error) from error

    def fingerprint(self) -> object:
        return list(map(repr, self._rows))
