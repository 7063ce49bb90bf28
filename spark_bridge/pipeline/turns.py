"""Two attempts at one subtask at the same time: Spark speculates, or has given up a worker that still writes.

Rules.
* A subtask that only keeps state runs as often as Spark likes: its working files are of one attempt, and snapshots are
  named by their content.
* A subtask that also writes elsewhere (a sink, a committer) has one place for all its attempts. They take turns: the
  first to come writes, and the others wait for it. One that dies frees its turn, and the next one writes instead.
* What an attempt gives is kept before its turn ends. Attempts that come later give the same, and write nothing: the
  driver may commit the files of the first by then. So a batch cannot be over while one of its attempts still writes.
* The rows of an older batch are kept until those of a newer one: an attempt that finds neither its own nor a batch that
  is not over, writes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.elements.operator import Operator
from engine.graph.plan import OperatorPlan, VertexPlan
from operators.sources import SourceOperator
from spark_bridge.pipeline.subtask_batch import BatchOrder
from state_backends.files import LocalFileSystem, write_atomically
from state_backends.snapshots import CheckpointStorage

if TYPE_CHECKING:
    import pyarrow as pa

TURNS_DIR_NAME = "turns"


def writes_elsewhere(vertex: VertexPlan) -> bool:
    """Whether a subtask of this vertex may write anything but its state."""
    return any(_writes(operator, operator.factory()) for operator in vertex.operators)


def _writes(operator: OperatorPlan, made: Operator) -> bool:
    if isinstance(made, SourceOperator):
        return False
    commits = type(made).notify_checkpoint_complete is not Operator.notify_checkpoint_complete
    return commits or not (operator.chained_outputs or operator.edge_outputs)


def in_turn(order: BatchOrder, subtask: int, run: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows of a subtask in a batch: of an attempt before, or those of ``run``, which begins when its turn comes."""
    import pyarrow as pa

    files = LocalFileSystem()
    storage = CheckpointStorage(files, order.storage_dir, order.plan.job_name)
    directory = posixpath.join(storage.working_dir, TURNS_DIR_NAME, str(subtask))
    kept = posixpath.join(directory, f"{order.incarnation}-{order.attempt}")
    turn = files.wait_for_directory(directory)
    try:
        if files.exists(kept):
            return list(pa.ipc.open_stream(files.read_bytes(kept)))
        rows = list(run)
        if rows:  # a subtask that has ended gives none, and writes nothing
            _keep(files, directory, kept, rows)
        return rows
    finally:
        turn.release()


def _keep(files: LocalFileSystem, directory: str, path: str, rows: list[pa.RecordBatch]) -> None:
    import pyarrow as pa

    older = [name for name in files.list_dir(directory) if name[:1].isdigit()]
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows[0].schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
    write_atomically(files, path, stream.getvalue().to_pybytes())
    for name in older:
        with suppress(FileNotFoundError):
            files.delete(posixpath.join(directory, name))
