"""Expands a valid job graph, once, into the plan of vertices, subtasks and channels that every run reuses.

Order is part of the result, since the runtime's choices count in it: vertices in topological order, edges
as they were added, channels by (edge, sender, receiver).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from engine.elements.operator_coordination import coordinator_factory
from engine.graph.chaining import Chain, build_chains
from engine.graph.distribution_patterns import connections
from engine.graph.job_graph import JobGraph, NodeRole, StreamEdge
from engine.graph.partitioner import BroadcastPartitioner
from engine.graph.plan import ChannelPlan, EdgePlan, ExecutionPlan, OperatorPlan, SubtaskPlan, VertexPlan
from state_backends.base import KeyType

FINGERPRINT_FORMAT = 1
"""Part of every fingerprint: grows when the meaning of the digested data changes."""

Place = tuple[int, int]
"""Vertex index and position in its chain."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything went: the facts about other vertices that building one vertex needs."""

    graph: JobGraph
    places: dict[int, Place]
    edges: tuple[EdgePlan, ...]
    edge_indices: dict[int, int]
    """Id of an edge of the graph -> its index in the plan, for the edges between vertices."""


def expand(graph: JobGraph, job_name: str) -> ExecutionPlan:
    """The execution plan of a graph that ``validation.validate`` has accepted."""
    chains = build_chains(graph)
    layout = _lay_out(graph, chains)
    vertices = tuple(_vertex(index, chain, layout) for index, chain in enumerate(chains))
    channels = _channels(vertices, layout.edges)
    return ExecutionPlan(
        job_name=job_name,
        vertices=vertices,
        edges=layout.edges,
        subtasks=_subtasks(vertices, channels),
        channels=channels,
        fingerprint=plan_fingerprint(vertices, layout.edges),
    )


def _lay_out(graph: JobGraph, chains: tuple[Chain, ...]) -> _Layout:
    places: dict[int, Place] = {
        node_id: (vertex, position)
        for vertex, chain in enumerate(chains)
        for position, node_id in enumerate(chain.members)
    }
    edges: list[EdgePlan] = []
    indices: dict[int, int] = {}
    aligned_only = _nodes_without_unaligned(graph)
    names: dict[str, int] = {}
    for edge in graph.edges():
        (sender, position), (receiver, entry) = places[edge.source], places[edge.target]
        # Chains are trees entered at the head, so an edge within one vertex is chained, or leads back to the head.
        if sender == receiver and not edge.is_feedback:
            continue
        assert entry == 0, edge
        indices[edge.id] = len(edges)
        edges.append(
            EdgePlan(
                len(edges),
                sender,
                position,
                receiver,
                edge.partitioner,
                edge.side_tag,
                edge.target_input,
                _edge_name(graph, edge, names),
                edge.target not in aligned_only,
                edge.is_feedback,
            )
        )
    return _Layout(graph, places, tuple(edges), indices)


def _nodes_without_unaligned(graph: JobGraph) -> frozenset[int]:
    """Operators one of whose inputs cannot be redistributed in flight; all their inputs then stay aligned.

    Feedback edges do not count: records in flight on them are part of every checkpoint, aligned or not.
    """
    return frozenset(
        edge.target
        for edge in graph.edges()
        if not edge.is_feedback and (edge.partitioner.pointwise or isinstance(edge.partitioner, BroadcastPartitioner))
    )


def _edge_name(graph: JobGraph, edge: StreamEdge, taken: dict[str, int]) -> str:
    """The identity of an edge between vertices; ``taken`` counts the equal ones given out so far."""
    labels = graph.labels()
    stem = f"{labels[edge.source].uid}>{edge.side_tag or ''}>{labels[edge.target].uid}"
    ordinal = taken.get(stem, 0)
    taken[stem] = ordinal + 1
    return f"{stem}#{ordinal}"


def _vertex(index: int, chain: Chain, layout: _Layout) -> VertexPlan:
    graph, head = layout.graph, layout.graph.node(chain.members[0])
    operators = tuple(_operator(node_id, layout) for node_id in chain.members)
    return VertexPlan(
        index=index,
        name=chain.name,
        parallelism=head.parallelism,
        max_parallelism=graph.max_parallelism_of(head.id),
        operators=operators,
        is_source=head.role is NodeRole.SOURCE,
        input_edges=tuple(
            layout.edge_indices[edge.id]
            for edge in graph.in_edges(head.id)  # only the head of a chain has network inputs
        ),
        output_edges=tuple(sorted(edge for operator in operators for _, edge in operator.edge_outputs)),
        is_max_parallelism_derived=head.declared_max_parallelism is None,
    )


def _operator(node_id: int, layout: _Layout) -> OperatorPlan:
    graph, places, indices = layout.graph, layout.places, layout.edge_indices
    label, outputs, keyed = graph.labels()[node_id], graph.out_edges(node_id), graph.is_keyed(node_id)
    return OperatorPlan(
        uid=label.uid,
        name=label.name,
        factory=graph.node(node_id).factory,
        position=places[node_id][1],
        keyed=keyed,
        # Validation has checked that all inputs declare the same type.
        key_type=graph.key_types_of(node_id)[0] if keyed else None,
        chained_outputs=tuple((edge.side_tag, places[edge.target][1]) for edge in outputs if edge.id not in indices),
        edge_outputs=tuple((edge.side_tag, indices[edge.id]) for edge in outputs if edge.id in indices),
        generated_uid=None if label.generated_uid == label.uid else label.generated_uid,
        create_coordinator=coordinator_factory(graph.node(node_id).factory),
    )


def _channels(vertices: tuple[VertexPlan, ...], edges: tuple[EdgePlan, ...]) -> tuple[ChannelPlan, ...]:
    channels: list[ChannelPlan] = []
    # Each number is one object, however many channels have it: there may be a million of them.
    ends = (end for edge in edges for end in (edge.source_vertex, edge.target_vertex))
    numbers = tuple(range(sum(vertices[end].parallelism for end in ends)))
    next_input = [[0] * vertex.parallelism for vertex in vertices]
    for edge in edges:
        source, target = edge.source_vertex, edge.target_vertex
        # Edges come in ascending order here as in VertexPlan.input_edges, and so do senders: counting up per
        # receiver gives exactly the input order that ChannelPlan promises.
        inputs = next_input[target]
        receivers_of = connections(
            edge.partitioner.pointwise, vertices[source].parallelism, vertices[target].parallelism
        )
        for sender, receivers in enumerate(receivers_of):
            for output_index, receiver in enumerate(receivers):
                at, position = numbers[output_index], numbers[inputs[receiver]]
                channels.append(
                    ChannelPlan(len(channels), edge.index, source, sender, at, target, numbers[receiver], position)
                )
                inputs[receiver] += 1
    return tuple(channels)


def _subtasks(vertices: tuple[VertexPlan, ...], channels: tuple[ChannelPlan, ...]) -> tuple[SubtaskPlan, ...]:
    inputs: dict[Place, list[int]] = {}
    outputs: dict[tuple[int, int], list[int]] = {}
    for channel in channels:
        inputs.setdefault((channel.receiver_vertex, channel.receiver_subtask), []).append(channel.index)
        outputs.setdefault((channel.edge, channel.sender_subtask), []).append(channel.index)
    subtasks: list[SubtaskPlan] = []
    for vertex in vertices:
        for subtask in range(vertex.parallelism):
            subtasks.append(
                SubtaskPlan(
                    index=len(subtasks),
                    vertex=vertex.index,
                    subtask=subtask,
                    name=f"{vertex.name}[{subtask}]",
                    input_channels=tuple(inputs.get((vertex.index, subtask), ())),
                    output_channels=tuple((edge, tuple(outputs[edge, subtask])) for edge in vertex.output_edges),
                )
            )
    return tuple(subtasks)


def plan_fingerprint(vertices: tuple[VertexPlan, ...], edges: tuple[EdgePlan, ...]) -> str:
    """SHA-256 over the data that makes two plans interchangeable. Functions and the job's name are no part of it."""
    structure = [
        FINGERPRINT_FORMAT,
        [
            [
                vertex.name,
                vertex.parallelism,
                vertex.max_parallelism,
                vertex.is_source,
                [
                    [
                        operator.uid,
                        operator.name,
                        operator.keyed,
                        _key_type_text(operator.key_type),
                        operator.chained_outputs,
                        operator.edge_outputs,
                    ]
                    for operator in vertex.operators
                ],
            ]
            for vertex in vertices
        ],
        [
            [
                edge.source_vertex,
                edge.source_position,
                edge.target_vertex,
                edge.partitioner.name,
                edge.side_tag,
                # Only where there is one: plans of graphs without second inputs and feedback keep their digest.
                *([edge.target_input] if edge.target_input else []),
                *(["feedback"] if edge.is_feedback else []),
            ]
            for edge in edges
        ],
    ]
    return hashlib.sha256(json.dumps(structure, separators=(",", ":")).encode()).hexdigest()


def _key_type_text(key_type: KeyType | None) -> str | None:
    return None if key_type is None else str(key_type)
