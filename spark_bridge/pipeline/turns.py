"""Two attempts at one subtask at the same time, as Spark makes them on purpose when it speculates.

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

import os
import pickle
import posixpath
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from engine.elements.operator import Operator
from engine.graph.plan import OperatorPlan, VertexPlan
from operators.sources import SourceOperator
from spark_bridge.pipeline.subtask_batch import BatchOrder
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage

RowT = TypeVar("RowT")

TURNS_DIR_NAME = "turns"


def writes_elsewhere(vertex: VertexPlan) -> bool:
    """Whether a subtask of this vertex may write anything but its state."""
    return any(_writes(operator, operator.factory()) for operator in vertex.operators)


def _writes(operator: OperatorPlan, made: Operator) -> bool:
    if isinstance(made, SourceOperator):
        return False
    commits = type(made).notify_checkpoint_complete is not Operator.notify_checkpoint_complete
    return commits or not (operator.chained_outputs or operator.edge_outputs)


def in_turn(order: BatchOrder, subtask: int, run: Callable[[], Iterable[RowT]]) -> list[RowT]:
    """The rows of a subtask in a batch: of an attempt before, or those of ``run``. Waits for its turn."""
    storage = CheckpointStorage(LocalFileSystem(), order.storage_dir, order.plan.job_name)
    directory = posixpath.join(storage.working_dir, TURNS_DIR_NAME, str(subtask))
    kept = posixpath.join(directory, f"{order.incarnation}-{order.attempt}")
    turn = LocalFileSystem().wait_for_directory(directory)
    try:
        with suppress(FileNotFoundError), open(kept, "rb") as file:
            rows: list[RowT] = pickle.load(file)
            return rows
        rows = list(run())
        _keep(directory, kept, rows)
        return rows
    finally:
        turn.release()


def _keep(directory: str, path: str, rows: list[RowT]) -> None:
    older = [name for name in os.listdir(directory) if name[:1].isdigit()]
    with open(f"{path}.inprogress", "wb") as file:
        pickle.dump(rows, file)
    os.replace(f"{path}.inprogress", path)
    for name in older:
        with suppress(FileNotFoundError):
            os.unlink(posixpath.join(directory, name))
