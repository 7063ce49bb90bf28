"""Where an operator acts when a checkpoint is complete.

Rules.
* An operator that only commits does so on the driver, as soon as the checkpoint is complete.
* An operator that also sends records then (partition commit, compaction) does both at the beginning of the next batch,
  where it runs: restored from that checkpoint, it hears that it is complete. Its records are part of that batch.
* So the data of such an operator's vertex may end in one batch, and the vertex is over one batch later at the earliest:
  once it has heard of the checkpoint after its end, and no vertex before it has anything more to send.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from engine.elements.operator import Operator
from engine.graph.plan import ExecutionPlan, OperatorPlan
from operators.sources import SourceOperator


def _acts(made: Operator) -> bool:
    """Whether an operator does something then. A source goes on without: no position is committed elsewhere."""
    does = type(made).notify_checkpoint_complete is not Operator.notify_checkpoint_complete
    return does and not isinstance(made, SourceOperator)


def tells(operator: OperatorPlan, made: Operator) -> bool:
    """Whether an operator may send records when a checkpoint is complete."""
    return _acts(made) and bool(operator.chained_outputs or operator.edge_outputs)


class Completion:
    """The operators of a plan that act when a checkpoint is complete."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._commits: set[tuple[int, int]] = set()
        self._tells: set[int] = set()
        for vertex, operator in plan.operators():
            made = operator.factory()
            if tells(operator, made):
                self._tells.add(vertex.index)
            elif _acts(made):
                self._commits.add((vertex.index, operator.position))

    def commits(self, vertex: int, position: int) -> bool:
        """Whether the operator at this position of a vertex commits on the driver."""
        return (vertex, position) in self._commits

    def vertices_over(
        self, plan: ExecutionPlan, over: Collection[int], ended: Collection[int], ended_before: Collection[int]
    ) -> Iterator[int]:
        """The vertices that are over with this batch. ``over``: those that were before. ``ended``: subtasks, by their
        index, whose data has ended; ``ended_before``: before this batch."""
        found = set(over)
        for vertex in plan.vertices:
            if vertex.index in found:
                continue
            subtasks = [one.index for one in plan.subtasks if one.vertex == vertex.index]
            sources = {plan.edges[edge].source_vertex for edge in vertex.input_edges}
            tells = vertex.index in self._tells
            if all(one in (ended_before if tells else ended) for one in subtasks) and sources <= (
                set(over) if tells else found
            ):
                found.add(vertex.index)
                yield vertex.index
