"""The head of an iteration, where records that are fed back join the input."""

from __future__ import annotations

from engine.elements.batch import Batch
from engine.elements.operator import Operator


class IterationHeadOperator(Operator):
    """Passes every record on (Flink: ``IterationHead``). Keys of its input end here, as after any operator."""

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch if batch.keys is None else Batch(batch.values, batch.timestamps))
