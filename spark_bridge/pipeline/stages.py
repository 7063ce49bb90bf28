"""Which subtasks run together: the plan of a job, cut into stages.

A stage holds the vertices whose longest way from a source has the same number of edges. So everything that a vertex
reads comes from earlier stages, and the whole of it is there when its stage begins: a stage boundary aligns by itself.
Partition ``i`` of a stage is its ``i``-th subtask, in plan order.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.graph.plan import ExecutionPlan, SubtaskPlan, VertexPlan
from spark_bridge.transform import SparkTransform, SparkTransformOperator


@dataclass(frozen=True, slots=True)
class BatchStage:
    """``number``: how many stages come before it. ``subtasks``: one for each partition."""

    number: int
    subtasks: tuple[SubtaskPlan, ...]

    def partition_of(self, subtask: int) -> int:
        """Where rows for the subtask with this index in the plan go. Rows for later stages only pass through, and are
        spread evenly."""
        first, count = self.subtasks[0].index, len(self.subtasks)
        position = subtask - first
        if 0 <= position < count and self.subtasks[position].index == subtask:
            return position
        return next((at for at, one in enumerate(self.subtasks) if one.index == subtask), subtask % count)


def transform_of(vertex: VertexPlan) -> SparkTransform | None:
    """The Spark transform that a vertex begins with. A global partitioner leads to it, so it has no other place."""
    made = vertex.operators[0].factory()
    return made.spec if isinstance(made, SparkTransformOperator) else None


def stages_of(plan: ExecutionPlan) -> tuple[BatchStage, ...]:
    """The stages of a plan without feedback edges, the sources first."""
    levels: dict[int, int] = {}
    # Vertices are in topological order, and so are the edges into each of them.
    for vertex in plan.vertices:
        sources = [plan.edges[edge].source_vertex for edge in vertex.input_edges]
        levels[vertex.index] = max((levels[source] + 1 for source in sources), default=0)
    stages: list[list[SubtaskPlan]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    for subtask in plan.subtasks:
        stages[levels[subtask.vertex]].append(subtask)
    return tuple(BatchStage(number, tuple(subtasks)) for number, subtasks in enumerate(stages))


def explain_stages(plan: ExecutionPlan) -> str:
    """What runs where, for people: each stage with its operators, its partitions and the exchanges that lead to it."""
    lines = [f"job {plan.job_name} on Spark: a batch goes through these stages, and ends with a checkpoint"]
    for stage in stages_of(plan):
        vertices = [plan.vertices[vertex] for vertex in dict.fromkeys(one.vertex for one in stage.subtasks)]
        functions = [(vertex.operators[0].name, spec) for vertex in vertices if (spec := transform_of(vertex))]
        lines.append(f"stage {stage.number}, on executors{', in two passes' if functions else ''}")
        for name, spec in functions:
            periods = "each closed period" if spec.period_column is None else "all closed periods at once"
            lines.append(f"  between them, for {periods}: the function of {name}, on executors")
        for described in vertices:
            operators = " -> ".join(operator.name for operator in described.operators)
            lines.append(f"  {operators}   partitions {described.parallelism}")
            for edge in (plan.edges[index] for index in described.input_edges):
                source = plan.vertices[edge.source_vertex].operators[edge.source_position].name
                lines.append(f"    <= {source}, by {edge.partitioner.name}")
    return "\n".join([*lines, "after the last stage, on the driver: the checkpoint, then the commits of sinks"])
