"""Which operators share a task: every condition of the chain rule, and that each one is needed."""

from __future__ import annotations

from typing import Any

import networkx
import pytest
from hypothesis import given

from engine.graph.chaining import LONGEST_CHAIN, build_chains, is_chainable
from engine.graph.job_graph import ChainingStrategy, JobGraph
from engine.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    RebalancePartitioner,
    RescalePartitioner,
)
from tests.graph.graphs import add_behind, add_sink, add_source, first_channel, identity, valid_graphs


def chain_names(graph: JobGraph) -> list[str]:
    return [chain.name for chain in build_chains(graph)]


def source_and_map(source: dict[str, Any] | None = None, behind: dict[str, Any] | None = None) -> JobGraph:
    """source -> map -> sink, where the sink is always apart."""
    graph = JobGraph()
    options: dict[str, Any] = {"parallelism": 2, **(behind or {})}
    node_id = add_behind(graph, add_source(graph, **{"parallelism": 2, **(source or {})}), "map", **options)
    add_sink(graph, node_id, parallelism=9)
    return graph


def test_forward_edge_between_equals_is_chained() -> None:
    """Equal parallelism gives a forward edge, and a forward edge a chain."""
    assert chain_names(source_and_map()) == ["source -> map", "sink"]


@pytest.mark.parametrize(
    "partitioner",
    [
        HashPartitioner(identity),
        RebalancePartitioner(),
        RescalePartitioner(),
        BroadcastPartitioner(),
        GlobalPartitioner(),
        CustomPartitioner(first_channel),
    ],
    ids=lambda partitioner: partitioner.name,
)
def test_only_forward_edges_are_chained(partitioner: Any) -> None:
    """Any other partitioner ends the chain, key_by among them, even between equals."""
    assert chain_names(source_and_map(behind={"partitioner": partitioner})) == ["source", "map", "sink"]


def test_different_parallelism_is_not_chained() -> None:
    """A task has one parallelism."""
    assert chain_names(source_and_map(behind={"parallelism": 3})) == ["source", "map", "sink"]


def test_forward_alone_is_not_enough() -> None:
    """The chain rule itself asks for equal parallelism; it does not rely on validation to refuse such an edge."""
    graph = source_and_map(behind={"parallelism": 3, "partitioner": ForwardPartitioner()})

    assert not is_chainable(graph, graph.edges()[0])


def test_different_max_parallelism_is_not_chained() -> None:
    """A task has one number of key groups, declared or derived."""
    assert chain_names(source_and_map(behind={"max_parallelism": 64})) == ["source", "map", "sink"]
    assert chain_names(source_and_map(behind={"max_parallelism": 128})) == ["source -> map", "sink"]


def test_two_inputs_are_not_chained() -> None:
    """An operator that reads a union starts a task, also when both inputs are the same operator."""
    graph = source_and_map()
    graph.add_edge(0, 1, partitioner=ForwardPartitioner())

    assert chain_names(graph) == ["source", "map", "sink"]


@pytest.mark.parametrize(
    ("source", "behind", "expected"),
    [
        (ChainingStrategy.ALWAYS, ChainingStrategy.ALWAYS, True),
        (ChainingStrategy.HEAD, ChainingStrategy.ALWAYS, True),
        (ChainingStrategy.NEVER, ChainingStrategy.ALWAYS, False),
        (ChainingStrategy.ALWAYS, ChainingStrategy.HEAD, False),
        (ChainingStrategy.ALWAYS, ChainingStrategy.NEVER, False),
    ],
)
def test_chaining_strategies(source: ChainingStrategy, behind: ChainingStrategy, expected: bool) -> None:
    """HEAD breaks the chain before the operator, NEVER on both sides."""
    graph = source_and_map({"chaining": source}, {"chaining": behind})

    assert is_chainable(graph, graph.edges()[0]) is expected


def test_chain_is_a_tree_named_as_in_flink() -> None:
    """One operator may feed several of its chain; the name shows the tree, members come depth first."""
    graph = JobGraph()
    source = add_source(graph, "in")
    left = add_behind(graph, source, "left")
    right = add_behind(graph, source, "right")
    add_sink(graph, left, name="out")
    add_sink(graph, right, name="side")

    (chain,) = build_chains(graph)

    assert chain.name == "in -> (left -> out, right -> side)"
    assert [graph.name_of(member) for member in chain.members] == ["in", "left", "out", "right", "side"]


def test_a_chain_gets_no_longer_than_the_stack_allows() -> None:
    """Operators of a chain call each other: after a number of them the next one begins a task of its own."""
    graph = JobGraph()
    node_id = add_source(graph)
    for index in range(3000):
        node_id = add_behind(graph, node_id, f"m{index}")
    add_sink(graph, node_id)

    chains = build_chains(graph)

    assert [len(chain.members) for chain in chains] == [LONGEST_CHAIN] * 46 + [3002 - 46 * LONGEST_CHAIN]


def test_the_length_of_a_chain_is_that_of_its_longest_branch() -> None:
    """The depth of the calls counts: a wide tree remains one chain."""
    graph = JobGraph()
    source = add_source(graph)
    for index in range(3 * LONGEST_CHAIN):
        add_sink(graph, source, name=f"out{index}")

    assert len(build_chains(graph)) == 1


@given(valid_graphs())
def test_chains_partition_the_graph(graph: JobGraph) -> None:
    """Every operator is in one chain, behind the one that feeds it; only the head has edges from outside."""
    chains = build_chains(graph)
    chain_of = {member: index for index, chain in enumerate(chains) for member in chain.members}

    assert sorted(chain_of) == [node.id for node in graph.nodes()]
    assert sum(len(chain.members) for chain in chains) == len(chain_of)
    for edge in graph.edges():
        inside = chain_of[edge.source] == chain_of[edge.target]
        members = chains[chain_of[edge.target]].members
        assert inside == is_chainable(graph, edge)
        if inside:
            assert members.index(edge.source) < members.index(edge.target)
        else:
            assert members[0] == edge.target
            assert chain_of[edge.source] < chain_of[edge.target]


@given(valid_graphs())
def test_chains_have_no_cycle(graph: JobGraph) -> None:
    """Merging operators into chains never makes a cycle of chains."""
    chain_of = {member: i for i, chain in enumerate(build_chains(graph)) for member in chain.members}
    merged = networkx.DiGraph()
    for edge in graph.edges():
        if chain_of[edge.source] != chain_of[edge.target]:
            merged.add_edge(chain_of[edge.source], chain_of[edge.target])

    assert networkx.is_directed_acyclic_graph(merged)
