"""Expands a valid job graph, once, into the plan of vertices, subtasks and channels that every run reuses.

Order is part of the result, since the runtime's choices count in it: vertices in topological order, edges as they
were added, channels by (edge, sender, receiver).
"""

from __future__ import annotations

import hashlib
import json

from engine.graph.chaining import Chain, build_chains
from engine.graph.channels import connections
from engine.graph.job_graph import JobGraph, NodeRole
from engine.graph.plan import ChannelPlan, EdgePlan, ExecutionPlan, OperatorPlan, SubtaskPlan, VertexPlan
from state_backends.key_groups import KeyType

FINGERPRINT_FORMAT = 1
"""Part of every fingerprint: grows when the meaning of what is digested changes."""

Place = tuple[int, int]
"""Vertex index and position in its chain."""


def expand(graph: JobGraph, job_name: str) -> ExecutionPlan:
    """The execution plan of a graph that ``validation.validate`` has accepted."""
    chains = build_chains(graph)
    places: dict[int, Place] = {
        node_id: (vertex, position)
        for vertex, chain in enumerate(chains)
        for position, node_id in enumerate(chain.members)
    }
    edges, edge_indices = _network_edges(graph, places)
    vertices = tuple(
        _vertex(graph, index, chain, places, edges, edge_indices) for index, chain in enumerate(chains)
    )
    channels = _channels(vertices, edges)
    return ExecutionPlan(
        job_name=job_name,
        vertices=vertices,
        edges=edges,
        subtasks=_subtasks(vertices, channels),
        channels=channels,
        fingerprint=plan_fingerprint(vertices, edges),
        vertex_names=tuple(vertex.name for vertex in vertices),
    )


def _network_edges(
    graph: JobGraph, places: dict[int, Place]
) -> tuple[tuple[EdgePlan, ...], dict[int, int]]:
    """The edges between vertices, and for the id of each in the graph its index in the plan."""
    edges: list[EdgePlan] = []
    indices: dict[int, int] = {}
    for edge in graph.edges():
        source_vertex, source_position = places[edge.source]
        target_vertex, target_position = places[edge.target]
        # Chains are trees entered at the head, so an edge within one vertex is a chained edge.
        if source_vertex == target_vertex:
            continue
        assert target_position == 0, edge
        indices[edge.id] = len(edges)
        edges.append(
            EdgePlan(len(edges), source_vertex, source_position, target_vertex, edge.partitioner, edge.side_tag)
        )
    return tuple(edges), indices


def _vertex(
    graph: JobGraph,
    index: int,
    chain: Chain,
    places: dict[int, Place],
    edges: tuple[EdgePlan, ...],
    edge_indices: dict[int, int],
) -> VertexPlan:
    head = graph.node(chain.members[0])
    return VertexPlan(
        index=index,
        name=chain.name,
        parallelism=head.parallelism,
        max_parallelism=graph.max_parallelism_of(head.id),
        operators=tuple(_operator(graph, node_id, places, edge_indices) for node_id in chain.members),
        is_source=head.role is NodeRole.SOURCE,
        input_edges=tuple(edge.index for edge in edges if edge.target_vertex == index),
        output_edges=tuple(edge.index for edge in edges if edge.source_vertex == index),
    )


def _operator(
    graph: JobGraph, node_id: int, places: dict[int, Place], edge_indices: dict[int, int]
) -> OperatorPlan:
    label, outputs = graph.labels()[node_id], graph.out_edges(node_id)
    declared_key_types = [key_type for key_type in graph.key_types_of(node_id) if key_type is not None]
    return OperatorPlan(
        uid=label.uid,
        name=label.name,
        factory=graph.node(node_id).factory,
        position=places[node_id][1],
        keyed=graph.is_keyed(node_id),
        key_type=declared_key_types[0] if declared_key_types and graph.is_keyed(node_id) else None,
        chained_outputs=tuple(
            (edge.side_tag, places[edge.target][1]) for edge in outputs if edge.id not in edge_indices
        ),
        edge_outputs=tuple(
            (edge.side_tag, edge_indices[edge.id]) for edge in outputs if edge.id in edge_indices
        ),
    )


def _channels(vertices: tuple[VertexPlan, ...], edges: tuple[EdgePlan, ...]) -> tuple[ChannelPlan, ...]:
    channels: list[ChannelPlan] = []
    next_input = [[0] * vertex.parallelism for vertex in vertices]
    for edge in edges:
        source, target = edge.source_vertex, edge.target_vertex
        # Edges come in ascending order here as in VertexPlan.input_edges, senders too: counting up per receiver
        # gives exactly the input order that ChannelPlan promises.
        inputs = next_input[target]
        receivers_of = connections(
            edge.partitioner.pointwise, vertices[source].parallelism, vertices[target].parallelism
        )
        for sender, receivers in enumerate(receivers_of):
            for output_index, receiver in enumerate(receivers):
                channels.append(
                    ChannelPlan(
                        len(channels), edge.index, source, sender, output_index, target, receiver, inputs[receiver]
                    )
                )
                inputs[receiver] += 1
    return tuple(channels)


def _subtasks(
    vertices: tuple[VertexPlan, ...], channels: tuple[ChannelPlan, ...]
) -> tuple[SubtaskPlan, ...]:
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
                    output_channels=tuple(
                        (edge, tuple(outputs[edge, subtask])) for edge in vertex.output_edges
                    ),
                )
            )
    return tuple(subtasks)


def plan_fingerprint(vertices: tuple[VertexPlan, ...], edges: tuple[EdgePlan, ...]) -> str:
    """SHA-256 over what makes two plans interchangeable. Functions and the job's name are no part of it."""
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
            [edge.source_vertex, edge.source_position, edge.target_vertex, edge.partitioner.name, edge.side_tag]
            for edge in edges
        ],
    ]
    return hashlib.sha256(json.dumps(structure, separators=(",", ":")).encode()).hexdigest()


def _key_type_text(key_type: KeyType | None) -> str | None:
    return None if key_type is None else str(key_type)
