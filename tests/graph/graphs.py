"""Small job graphs for the tests of this directory, and a hypothesis strategy for random valid ones."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.elements.operator import Operator
from engine.graph.job_graph import ChainingStrategy, JobGraph, NodeRole
from engine.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
)


def identity(value: object) -> object:
    """Key selectors and functions; their results do not matter here."""
    return value


def first_channel(value: object, channels: int) -> int:
    return 0


def add_source(graph: JobGraph, name: str = "source", parallelism: int = 1, **options: object) -> int:
    return graph.add_operator(
        "source",
        Operator,
        name=name,
        parallelism=parallelism,
        role=NodeRole.SOURCE,
        **options,  # type: ignore[arg-type]
    )


def add_sink(graph: JobGraph, *inputs: int, name: str = "sink", parallelism: int = 1) -> int:
    """Add a sink that reads all of ``inputs``, with default edges."""
    sink = graph.add_operator("sink", Operator, name=name, parallelism=parallelism, role=NodeRole.SINK)
    for node_id in inputs:
        graph.add_edge(node_id, sink)
    return sink


def add_behind(
    graph: JobGraph,
    before: int,
    name: str,
    parallelism: int = 1,
    partitioner: Partitioner | None = None,
    **options: object,
) -> int:
    node_id = graph.add_operator(
        "map",
        Operator,
        name=name,
        parallelism=parallelism,
        **options,  # type: ignore[arg-type]
    )
    graph.add_edge(before, node_id, partitioner=partitioner)
    return node_id


PARTITIONERS: tuple[Partitioner | None, ...] = (
    None,
    HashPartitioner(identity),
    RebalancePartitioner(),
    RescalePartitioner(),
    BroadcastPartitioner(),
    GlobalPartitioner(),
    CustomPartitioner(first_channel),
)


@st.composite
def valid_graphs(draw: st.DrawFn, most_operators: int = 8, most_parallelism: int = 7) -> JobGraph:
    """Graphs of any shape that validation accepts: sources, unions, side outputs, splits, sinks."""
    graph = JobGraph()
    parallelisms = st.integers(1, most_parallelism)
    add_source(graph, "source-0", draw(parallelisms))
    for index in range(1, draw(st.integers(1, most_operators))):
        if draw(st.integers(0, 4)) == 0:
            add_source(graph, f"source-{index}", draw(parallelisms))
            continue
        # Equal parallelisms are what makes forward edges and chains: draw them often.
        inputs = draw(st.lists(st.integers(0, index - 1), min_size=1, max_size=3))
        same = draw(st.booleans())
        parallelism = graph.node(inputs[0]).parallelism if same else draw(parallelisms)
        chaining = draw(st.sampled_from([*[ChainingStrategy.ALWAYS] * 4, *ChainingStrategy]))
        node_id = graph.add_operator("map", Operator, name=f"op-{index}", parallelism=parallelism, chaining=chaining)
        for source in inputs:
            forwardable = graph.node(source).parallelism == parallelism
            choices = [*PARTITIONERS, *([ForwardPartitioner()] * 7 if forwardable else [])]
            graph.add_edge(
                source,
                node_id,
                partitioner=draw(st.sampled_from(choices)),
                side_tag=draw(st.sampled_from([None, None, None, "late"])),
            )
    for node in graph.nodes():
        if not graph.out_edges(node.id):
            add_sink(graph, node.id, name=f"sink-{node.id}", parallelism=draw(parallelisms))
    return graph
