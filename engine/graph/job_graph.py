"""The job graph: operators and the edges between them, before chaining (Flink: ``StreamGraph``).

The fluent API writes it, ``validation`` judges it, ``chaining`` and ``expansion`` read it; a run never touches it. Two
streams may join the same two operators. A union is not an operator: it is several input edges. What is asked of
graphs with loops ``networkx`` answers, whose import takes a quarter of a command's start: others do without it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from engine.elements.errors import JobGraphError, shorten
from engine.elements.operator import OperatorFactory
from engine.graph.naming import NodeLabel, resolve_labels
from engine.graph.partitioner import (
    BroadcastPartitioner,
    ForwardPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
)
from state_backends.base import KeyType, default_max_parallelism


class NodeRole(Enum):
    """Where an operator may stand: sources have no input, sinks no output."""

    SOURCE = "source"
    TRANSFORM = "transform"
    SINK = "sink"


class ChainingStrategy(Enum):
    """Whether an operator may share a task with its neighbours (Flink: ``ChainingStrategy``)."""

    ALWAYS = "always"
    """With the operators before and after it, whenever the edges allow."""
    HEAD = "head"
    """Only with the operators after it: it starts a new chain."""
    NEVER = "never"
    """With no operator."""


@dataclass(frozen=True, slots=True)
class StreamNode:
    """One operator as it was declared.

    ``kind``                     its kind (``"map"``), the stem of its name when none was given;
    ``declared_name``, ``declared_uid``, ``declared_max_parallelism``
                                 the user's values, ``None`` where the engine chooses;
    ``requires_key``             whether it reaches keyed state and so must come directly after ``key_by``;
    ``inputs``                   how many inputs it tells apart, 1 or 2; each may be fed by several edges;
    ``is_iteration_head``        whether feedback edges may lead to it.
    """

    id: int
    kind: str
    factory: OperatorFactory
    parallelism: int
    declared_name: str | None = None
    declared_uid: str | None = None
    declared_max_parallelism: int | None = None
    role: NodeRole = NodeRole.TRANSFORM
    requires_key: bool = False
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    inputs: int = 1
    is_iteration_head: bool = False


@dataclass(frozen=True, slots=True)
class StreamEdge:
    """The records of ``source`` (its side output ``side_tag``, when there is one) flow to ``target``: to its input
    ``target_input``, 0 for the first or only one and 1 for the second of two. ``is_feedback``: back to the head of an
    iteration; without its feedback edges a graph has no cycle."""

    id: int
    source: int
    target: int
    partitioner: Partitioner
    side_tag: str | None = None
    target_input: int = 0
    is_feedback: bool = False


class JobGraph:
    """Operators and edges in the order in which they were added; every answer has this order, too."""

    def __init__(self) -> None:
        self._nodes: dict[int, StreamNode] = {}
        self._edges: list[StreamEdge] = []
        self._inputs: dict[int, list[StreamEdge]] = {}
        self._outputs: dict[int, list[StreamEdge]] = {}
        self.revision = 0
        """Grows with every change; lets a caller keep its results until the graph changes."""
        self._labels: tuple[int, dict[int, NodeLabel]] = (0, {})

    def add_operator(
        self,
        kind: str,
        factory: OperatorFactory,
        *,
        parallelism: int = 1,
        name: str | None = None,
        uid: str | None = None,
        max_parallelism: int | None = None,
        role: NodeRole = NodeRole.TRANSFORM,
        requires_key: bool = False,
        chaining: ChainingStrategy = ChainingStrategy.ALWAYS,
    ) -> int:
        """Add an operator without edges and return its id. Nothing is checked before ``validate``."""
        node_id = len(self._nodes)
        self._nodes[node_id] = StreamNode(
            node_id, kind, factory, parallelism, name, uid, max_parallelism, role, requires_key, chaining
        )
        self._inputs[node_id], self._outputs[node_id] = [], []
        self.revision += 1
        return node_id

    def add_edge(
        self,
        source: int,
        target: int,
        *,
        partitioner: Partitioner | None = None,
        side_tag: str | None = None,
        target_input: int = 0,
        is_feedback: bool = False,
    ) -> int:
        """Connect two operators and return the id of the edge.

        Without a partitioner the edge is forward between equal parallelisms and rebalance otherwise (Flink:
        ``StreamGraph.createActualEdge``). Raises ``JobGraphError`` when an operator is not in this graph.
        """
        for node_id in (source, target):
            if node_id not in self._nodes:
                raise JobGraphError(
                    f"edge {shorten(source)} -> {shorten(target)}: "
                    f"this graph has no operator {shorten(node_id)}\n"
                    f"  fix: use the ids that add_operator returned; there are {len(self.nodes())}"
                )
        if partitioner is None:
            partitioner = self._default_partitioner(source, target)
        edge = StreamEdge(len(self._edges), source, target, partitioner, side_tag, target_input, is_feedback)
        for edges in (self._edges, self._outputs[source], self._inputs[target]):
            edges.append(edge)
        self.revision += 1
        return edge.id

    def _default_partitioner(self, source: int, target: int) -> Partitioner:
        if self.node(source).parallelism == self.node(target).parallelism:
            return ForwardPartitioner()
        return RebalancePartitioner()

    def set_chaining(self, node_id: int, strategy: ChainingStrategy) -> None:
        """Change whether an operator may be chained."""
        self._nodes[node_id] = replace(self.node(node_id), chaining=strategy)
        self.revision += 1

    def set_inputs(self, node_id: int, inputs: int) -> None:
        """Say how many inputs an operator tells apart."""
        self._nodes[node_id] = replace(self.node(node_id), inputs=inputs)
        self.revision += 1

    def set_iteration_head(self, node_id: int) -> None:
        """Say that feedback edges lead to an operator."""
        self._nodes[node_id] = replace(self.node(node_id), is_iteration_head=True)
        self.revision += 1

    def node(self, node_id: int) -> StreamNode:
        """The operator with this id."""
        return self._nodes[node_id]

    def nodes(self) -> tuple[StreamNode, ...]:
        """All operators."""
        return tuple(self._nodes.values())

    def edges(self) -> tuple[StreamEdge, ...]:
        """All edges."""
        return tuple(self._edges)

    def in_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """The inputs of an operator."""
        return tuple(self._inputs[node_id])

    def out_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """The outputs of an operator, side outputs among them."""
        return tuple(self._outputs[node_id])

    def labels(self) -> dict[int, NodeLabel]:
        """Name and uid of every operator by id; see ``naming`` for how the ones not given are made."""
        if self._labels[0] != self.revision:
            self._labels = (self.revision, resolve_labels(self.nodes()))
        return self._labels[1]

    def name_of(self, node_id: int) -> str:
        """Name of an operator in messages and metrics."""
        return self.labels()[node_id].name

    def max_parallelism_of(self, node_id: int) -> int:
        """The declared number of key groups, or Flink's default for the parallelism."""
        node = self.node(node_id)
        if node.declared_max_parallelism is not None:
            return node.declared_max_parallelism
        return default_max_parallelism(node.parallelism)

    def is_keyed(self, node_id: int) -> bool:
        """Whether every input of the operator comes through ``key_by``; a second input may be a broadcast instead,
        which has no keys and reaches the state of all of them."""
        edges = self.in_edges(node_id)
        first = [edge.partitioner for edge in edges if edge.target_input == 0]
        second = [edge.partitioner for edge in edges if edge.target_input != 0]
        return (
            bool(first)
            and all(isinstance(partitioner, HashPartitioner) for partitioner in first)
            and (
                all(isinstance(partitioner, HashPartitioner) for partitioner in second)
                or all(isinstance(partitioner, BroadcastPartitioner) for partitioner in second)
            )
        )

    def key_types_of(self, node_id: int) -> tuple[KeyType | None, ...]:
        """The declared key types of the hash edges into the operator, in edge order (``None``: not declared)."""
        return tuple(
            edge.partitioner.key_type
            for edge in self.in_edges(node_id)
            if isinstance(edge.partitioner, HashPartitioner)
        )

    def topological_order(self) -> tuple[int, ...]:
        """Ids so that every edge but feedback points forward; among equals the one added first. Operators on a cycle of
        other edges, and those after it, are left out."""
        waits_for = {one: sum(not edge.is_feedback for edge in edges) for one, edges in self._inputs.items()}
        ready = [one for one, inputs in waits_for.items() if not inputs]
        order = []
        while ready:
            order.append(heapq.heappop(ready))
            for edge in self._outputs[order[-1]]:
                waits_for[edge.target] -= not edge.is_feedback
                if not edge.is_feedback and not waits_for[edge.target]:
                    heapq.heappush(ready, edge.target)
        return tuple(order)

    def find_cycle(self) -> tuple[int, ...] | None:
        """The operators of one cycle without feedback edges in flow order, beginning with the one added first; ``None``
        when there is none."""
        if len(self.topological_order()) == len(self._nodes):
            return None
        import networkx

        path = [edge[0] for edge in networkx.find_cycle(self._digraph(feedback=False))]
        first = path.index(min(path))
        return tuple(path[first:] + path[:first])

    def leads_to(self, source: int, target: int) -> bool:
        """Whether records of ``source`` reach ``target`` without a feedback edge; an operator leads to itself."""
        import networkx

        return bool(networkx.has_path(self._digraph(feedback=False), source, target))

    def loop_of(self, head: int) -> tuple[int, ...]:
        """The operators from which records come back to an operator, and itself, in the order they were added."""
        import networkx

        whole = self._digraph(feedback=True)
        return tuple(sorted({head, *networkx.ancestors(whole, head).intersection(networkx.descendants(whole, head))}))

    def _digraph(self, *, feedback: bool) -> Any:
        import networkx

        digraph = networkx.MultiDiGraph()
        digraph.add_nodes_from(self._nodes)
        kept = (edge for edge in self._edges if feedback or not edge.is_feedback)
        digraph.add_edges_from((edge.source, edge.target, edge.id) for edge in kept)
        return digraph
