"""The job graph: operators and the edges between them, before chaining (Flink: ``StreamGraph``).

The fluent API writes it, ``validation`` judges it, ``chaining`` and ``expansion`` read it. It sits on a
``networkx.MultiDiGraph`` (two streams may join the same two operators), which is imported when the first
graph is made; a run never touches it. A union is not an operator: it is several input edges.
"""

from __future__ import annotations

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
        import networkx

        self._digraph = networkx.MultiDiGraph()
        self._edges: list[StreamEdge] = []
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
        node_id: int = self._digraph.number_of_nodes()
        node = StreamNode(node_id, kind, factory, parallelism, name, uid, max_parallelism, role, requires_key, chaining)
        self._digraph.add_node(node_id, node=node)
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
            if node_id not in self._digraph:
                raise JobGraphError(
                    f"edge {shorten(source)} -> {shorten(target)}: "
                    f"this graph has no operator {shorten(node_id)}\n"
                    f"  fix: use the ids that add_operator returned; there are {len(self.nodes())}"
                )
        if partitioner is None:
            partitioner = self._default_partitioner(source, target)
        edge = StreamEdge(len(self._edges), source, target, partitioner, side_tag, target_input, is_feedback)
        self._digraph.add_edge(source, target, key=edge.id, edge=edge)
        self._edges.append(edge)
        self.revision += 1
        return edge.id

    def _default_partitioner(self, source: int, target: int) -> Partitioner:
        if self.node(source).parallelism == self.node(target).parallelism:
            return ForwardPartitioner()
        return RebalancePartitioner()

    def set_chaining(self, node_id: int, strategy: ChainingStrategy) -> None:
        """Change whether an operator may be chained."""
        self._digraph.nodes[node_id]["node"] = replace(self.node(node_id), chaining=strategy)
        self.revision += 1

    def set_inputs(self, node_id: int, inputs: int) -> None:
        """Say how many inputs an operator tells apart."""
        self._digraph.nodes[node_id]["node"] = replace(self.node(node_id), inputs=inputs)
        self.revision += 1

    def set_iteration_head(self, node_id: int) -> None:
        """Say that feedback edges lead to an operator."""
        self._digraph.nodes[node_id]["node"] = replace(self.node(node_id), is_iteration_head=True)
        self.revision += 1

    def node(self, node_id: int) -> StreamNode:
        """The operator with this id."""
        node: StreamNode = self._digraph.nodes[node_id]["node"]
        return node

    def nodes(self) -> tuple[StreamNode, ...]:
        """All operators."""
        return tuple(self.node(node_id) for node_id in range(self._digraph.number_of_nodes()))

    def edges(self) -> tuple[StreamEdge, ...]:
        """All edges."""
        return tuple(self._edges)

    def in_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """The inputs of an operator."""
        keys = sorted(key for _, _, key in self._digraph.in_edges(node_id, keys=True))
        return tuple(self._edges[key] for key in keys)

    def out_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """The outputs of an operator, side outputs among them."""
        keys = sorted(key for _, _, key in self._digraph.out_edges(node_id, keys=True))
        return tuple(self._edges[key] for key in keys)

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
        """Ids so that every edge but feedback points forward; among equals the one added first. Without its feedback
        edges the graph has no cycle."""
        import networkx

        return tuple(networkx.lexicographical_topological_sort(self._without_feedback()))

    def find_cycle(self) -> tuple[int, ...] | None:
        """The operators of one cycle without feedback edges in flow order, beginning with the one added first; ``None``
        when there is none."""
        import networkx

        try:
            edges = networkx.find_cycle(self._without_feedback())
        except networkx.NetworkXNoCycle:
            return None
        path = [edge[0] for edge in edges]
        first = path.index(min(path))
        return tuple(path[first:] + path[:first])

    def leads_to(self, source: int, target: int) -> bool:
        """Whether records of ``source`` reach ``target`` without a feedback edge; an operator leads to itself."""
        import networkx

        return bool(networkx.has_path(self._without_feedback(), source, target))

    def loop_of(self, head: int) -> tuple[int, ...]:
        """The operators from which records come back to an operator, and itself, in the order they were added."""
        import networkx

        before, behind = networkx.ancestors(self._digraph, head), networkx.descendants(self._digraph, head)
        return tuple(sorted({head, *before.intersection(behind)}))

    def _without_feedback(self) -> Any:
        import networkx

        if not any(edge.is_feedback for edge in self._edges):
            return self._digraph
        edges = self._edges
        return networkx.subgraph_view(self._digraph, filter_edge=lambda _from, _to, key: not edges[key].is_feedback)
