"""Chains: which operators run inside one task, handing batches to each other by a call instead of a channel.

An edge is chained when all of this holds (Flink: ``StreamingJobGraphGenerator.isChainable``):

1. its partitioner is forward (so never across ``key_by``);
2. the operator behind it has exactly one input edge (so never a feedback edge: the head of an iteration has two);
3. both sides have the same parallelism and the same max parallelism;
4. the operator before it is not ``NEVER`` chained, and the one behind it is ``ALWAYS``.

By rule 2 a chain is a tree that is entered at its head only; that is why merging chains cannot make a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.graph.job_graph import ChainingStrategy, JobGraph, StreamEdge
from engine.graph.partitioner import ForwardPartitioner


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one task, head first, every operator behind the one that feeds it."""

    name: str
    members: tuple[int, ...]


def is_chainable(graph: JobGraph, edge: StreamEdge) -> bool:
    """Whether the two ends of ``edge`` run in one task."""
    sender, receiver = graph.node(edge.source), graph.node(edge.target)
    return (
        isinstance(edge.partitioner, ForwardPartitioner)
        and len(graph.in_edges(edge.target)) == 1
        and sender.parallelism == receiver.parallelism
        and graph.max_parallelism_of(edge.source) == graph.max_parallelism_of(edge.target)
        and sender.chaining is not ChainingStrategy.NEVER
        and receiver.chaining is ChainingStrategy.ALWAYS
    )


def build_chains(graph: JobGraph) -> tuple[Chain, ...]:
    """All chains of a valid graph, in topological order of their heads."""
    chained: dict[int, list[int]] = {node.id: [] for node in graph.nodes()}
    inside: set[int] = set()
    for edge in graph.edges():
        if is_chainable(graph, edge):
            chained[edge.source].append(edge.target)
            inside.add(edge.target)
    chains = []
    for node_id in graph.topological_order():
        if node_id not in inside:
            members = _members(node_id, chained)
            chains.append(Chain(_chain_name(members, chained, graph), members))
    return tuple(chains)


def _members(head: int, chained: dict[int, list[int]]) -> tuple[int, ...]:
    """The tree below ``head`` in depth-first order. A loop, since chains may be longer than the stack is deep."""
    members: list[int] = []
    pending = [head]
    while pending:
        node_id = pending.pop()
        members.append(node_id)
        pending.extend(reversed(chained[node_id]))
    return tuple(members)


def _chain_name(members: tuple[int, ...], chained: dict[int, list[int]], graph: JobGraph) -> str:
    """``a -> b -> (c, d)``, as Flink's web UI shows chains."""
    names: dict[int, str] = {}
    for node_id in reversed(members):
        name, below = graph.name_of(node_id), [names[child] for child in chained[node_id]]
        if len(below) == 1:
            name = f"{name} -> {below[0]}"
        elif below:
            name = f"{name} -> ({', '.join(below)})"
        names[node_id] = name
    return names[members[0]]
