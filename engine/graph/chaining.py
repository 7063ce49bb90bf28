"""Chains: which operators run inside one task, handing batches to each other by a call instead of a channel.

An edge is chained when all of this holds (Flink: ``StreamingJobGraphGenerator.isChainable``):

1. its partitioner is forward (so never across ``key_by``);
2. the operator after it has exactly one input edge (so never a feedback edge: the head of an iteration has two);
3. both sides have the same parallelism and the same max parallelism;
4. the operator before it is not ``NEVER`` chained, and the one after it is ``ALWAYS``;
5. from the head of the chain to the operator after it are at most :data:`LONGEST_CHAIN` operators; otherwise that one
   begins a task of its own. Each operator calls the next, and Python's stack is not deep (Flink has no such rule).

By rule 2 a chain is a tree that is entered at its head only; therefore merging chains cannot make a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.graph.job_graph import ChainingStrategy, JobGraph, StreamEdge
from engine.graph.partitioner import ForwardPartitioner

LONGEST_CHAIN = 64
"""Operators that call each other before one of them gets a task of its own. A call takes two to five of the 1,000
frames that Python's stack has, and the functions of the job need some of them, too."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one task, head first, every operator after the one that feeds it."""

    name: str
    members: tuple[int, ...]


def is_chainable(graph: JobGraph, edge: StreamEdge) -> bool:
    """Whether the two ends of ``edge`` run in one task, unless its chain gets too long."""
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
    order = graph.topological_order()
    position: dict[int, int] = dict.fromkeys(order, 1)
    for node_id in order:
        for edge in graph.out_edges(node_id):
            if position[node_id] < LONGEST_CHAIN and is_chainable(graph, edge):
                chained[node_id].append(edge.target)
                position[edge.target] = position[node_id] + 1
    trees = [_members(node_id, chained) for node_id in order if position[node_id] == 1]
    return tuple(Chain(_chain_name(members, chained, graph), members) for members in trees)


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
