"""The source of the streaming query: one row for each subtask that begins a batch.

The positions of a job's sources are operator state, in Weir's checkpoints. So the offset of the query is only the
number of the batch, and the query starts anew with every process. There is one truth about how far a job has come,
and a batch that Spark has logged and Weir has not, or the other way round, cannot exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from spark_bridge.pipeline.stage_function import ROW_SCHEMA

FORMAT = "weir.batches"


class BatchSource(DataSource):
    """Options: ``subtasks``, their indices in the plan; ``over``, a file that exists once no batch is left."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ROW_SCHEMA

    def streamReader(self, schema: Any) -> BatchReader:
        return BatchReader([int(one) for one in self.options["subtasks"].split(",")], self.options["over"])


class BatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers one batch after the other. It lives in a process of its own, and shares nothing but the file."""

    def __init__(self, subtasks: Sequence[int], over: str) -> None:
        self._subtasks = subtasks
        self._over = over

    def prepareForTriggerAvailableNow(self) -> None:
        """The end is not known before: the last batch says so. Without this mixin there would be a single batch."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return start if os.path.exists(self._over) else {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(subtask) for subtask in self._subtasks] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield (0, partition.value, 0, 0, b"")
