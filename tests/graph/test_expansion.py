"""The plan: indices that fit together from both sides, for any graph."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given

from engine.elements.operator import Operator
from engine.graph.expansion import expand, plan_fingerprint
from engine.graph.job_graph import JobGraph
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
from engine.graph.plan import ExecutionPlan
from state_backends.base import INT
from tests.graph.graphs import add_behind, add_sink, add_source, first_channel, identity, valid_graphs
from tests.hash_seeds import printed


def test_small_plan_by_hand() -> None:
    """Two chained operators, a hash edge and a side output out of the chain: every field written out."""
    graph = JobGraph()
    source = add_source(graph, "in", 2)
    parse = add_behind(graph, source, "parse", 2)
    count = add_behind(graph, parse, "count", 1, HashPartitioner(identity, key_type=INT))
    add_sink(graph, count, name="out")
    bad = add_sink(graph, name="bad", parallelism=2)
    graph.add_edge(parse, bad, partitioner=RescalePartitioner(), side_tag="malformed")

    plan = expand(graph, "small")

    assert plan.job_name == "small"
    assert tuple(vertex.name for vertex in plan.vertices) == ("in -> parse", "count -> out", "bad")
    head, tail, bad_vertex = plan.vertices
    assert (head.parallelism, head.max_parallelism, head.is_source) == (2, 128, True)
    assert (head.input_edges, head.output_edges) == ((), (0, 1))
    assert (tail.input_edges, tail.output_edges, tail.is_source) == ((0,), (), False)
    assert (bad_vertex.input_edges, bad_vertex.output_edges) == ((1,), ())
    assert [operator.position for operator in head.operators] == [0, 1]
    assert head.operators[0].chained_outputs == ((None, 1),)
    assert head.operators[1].chained_outputs == ()
    assert head.operators[1].edge_outputs == ((None, 0), ("malformed", 1))
    assert (tail.operators[0].keyed, tail.operators[0].key_type) == (True, INT)
    assert (tail.operators[1].keyed, tail.operators[1].key_type) == (False, None)
    assert [(e.source_vertex, e.source_position, e.target_vertex, e.side_tag) for e in plan.edges] == [
        (0, 1, 1, None),
        (0, 1, 2, "malformed"),
    ]
    assert [subtask.name for subtask in plan.subtasks] == [
        "in -> parse[0]",
        "in -> parse[1]",
        "count -> out[0]",
        "bad[0]",
        "bad[1]",
    ]
    assert [(c.edge, c.sender_subtask, c.output_index, c.receiver_subtask, c.input_index) for c in plan.channels] == [
        (0, 0, 0, 0, 0),
        (0, 1, 0, 0, 1),
        (1, 0, 0, 0, 0),
        (1, 1, 0, 1, 0),
    ]
    assert plan.subtasks[1].output_channels == ((0, (1,)), (1, (3,)))
    assert plan.subtasks[2].input_channels == (0, 1)


def test_union_keeps_the_order_of_its_inputs() -> None:
    """Input channels of a union: edges as they were added, then senders in order."""
    graph = JobGraph()
    second, first = add_source(graph, "second", 2), add_source(graph, "first", 2)
    sink = add_sink(graph, name="out", parallelism=1)
    graph.add_edge(first, sink, partitioner=RebalancePartitioner())
    graph.add_edge(second, sink, partitioner=RebalancePartitioner())

    plan = expand(graph, "union")
    senders = [plan.channels[channel] for channel in plan.subtasks[-1].input_channels]

    assert [(plan.vertices[c.sender_vertex].name, c.sender_subtask) for c in senders] == [
        ("first", 0),
        ("first", 1),
        ("second", 0),
        ("second", 1),
    ]


def test_keyed_needs_a_hash_edge_on_every_input() -> None:
    """An operator that also has an unkeyed input owns no keyed state."""
    graph = JobGraph()
    source = add_source(graph)
    both = add_behind(graph, source, "both", partitioner=HashPartitioner(identity))
    graph.add_edge(source, both)
    add_sink(graph, both)

    operators = {operator.name: operator for _, operator in expand(graph, "job").operators()}

    assert not operators["both"].keyed


def test_factories_are_passed_on_untouched() -> None:
    """The plan holds the very function that the user gave."""
    graph = JobGraph()
    factory = lambda: Operator()  # noqa: E731, PLW0108 - identity is the claim
    add_sink(graph, graph.add_operator("map", factory))

    assert expand(graph, "job").vertices[0].operators[0].factory is factory


@given(valid_graphs())
def test_indices_are_positions(graph: JobGraph) -> None:
    """Every index in the plan is the position of the thing in its tuple."""
    plan = expand(graph, "job")

    for things in (plan.vertices, plan.edges, plan.subtasks, plan.channels):
        assert [thing.index for thing in things] == list(range(len(things)))
    for vertex in plan.vertices:
        assert [operator.position for operator in vertex.operators] == list(range(len(vertex.operators)))


@given(valid_graphs())
def test_every_operator_and_edge_is_in_the_plan_once(graph: JobGraph) -> None:
    """No operator and no edge is lost or doubled; uids and subtask names are unique."""
    plan = expand(graph, "job")
    operators = [operator for _, operator in plan.operators()]
    chained = [pair for operator in operators for pair in operator.chained_outputs]
    network = [index for operator in operators for _, index in operator.edge_outputs]

    assert sorted(op.uid for op in operators) == sorted(label.uid for label in graph.labels().values())
    assert len(chained) + len(network) == len(graph.edges())
    assert sorted(network) == list(range(len(plan.edges)))
    assert len({subtask.name for subtask in plan.subtasks}) == len(plan.subtasks)


@given(valid_graphs())
def test_vertices_know_their_edges(graph: JobGraph) -> None:
    """Edges are listed by both their vertices, in ascending order, and always point to a later vertex."""
    plan = expand(graph, "job")

    for vertex in plan.vertices:
        assert vertex.input_edges == tuple(e.index for e in plan.edges if e.target_vertex == vertex.index)
        assert vertex.output_edges == tuple(e.index for e in plan.edges if e.source_vertex == vertex.index)
        assert vertex.is_source == (not vertex.input_edges)
    for edge in plan.edges:
        assert edge.source_vertex < edge.target_vertex
        assert (edge.side_tag, edge.index) in plan.vertices[edge.source_vertex].operators[
            edge.source_position
        ].edge_outputs


@given(valid_graphs())
def test_channel_indices_fit_from_both_sides(graph: JobGraph) -> None:
    """A channel is at ``output_index`` of its edge at the sender and at ``input_index`` at the receiver."""
    plan = expand(graph, "job")
    subtasks = {(subtask.vertex, subtask.subtask): subtask for subtask in plan.subtasks}

    assert sum(len(subtask.input_channels) for subtask in plan.subtasks) == len(plan.channels)
    for channel in plan.channels:
        edge = plan.edges[channel.edge]
        sender = subtasks[channel.sender_vertex, channel.sender_subtask]
        receiver = subtasks[channel.receiver_vertex, channel.receiver_subtask]
        assert (edge.source_vertex, edge.target_vertex) == (sender.vertex, receiver.vertex)
        assert dict(sender.output_channels)[channel.edge][channel.output_index] == channel.index
        assert receiver.input_channels[channel.input_index] == channel.index
    for subtask in plan.subtasks:
        assert tuple(edge for edge, _ in subtask.output_channels) == plan.vertices[subtask.vertex].output_edges
        order = [(plan.channels[i].edge, plan.channels[i].sender_subtask) for i in subtask.input_channels]
        assert order == sorted(order)


@given(valid_graphs())
def test_number_of_channels_per_edge(graph: JobGraph) -> None:
    """All-to-all edges have senders × receivers channels, pointwise ones as many as the larger side."""
    plan = expand(graph, "job")

    for edge in plan.edges:
        senders = plan.vertices[edge.source_vertex].parallelism
        receivers = plan.vertices[edge.target_vertex].parallelism
        channels = [c for c in plan.channels if c.edge == edge.index]
        expected = max(senders, receivers) if edge.partitioner.pointwise else senders * receivers
        assert len(channels) == expected
        if isinstance(edge.partitioner, ForwardPartitioner):
            assert all(c.sender_subtask == c.receiver_subtask for c in channels)


@given(valid_graphs())
def test_same_graph_same_plan(graph: JobGraph) -> None:
    """Expansion is a function of the graph."""
    assert expand(graph, "job") == expand(graph, "job")


def test_thousand_subtasks() -> None:
    """Two vertices of 500 subtasks, 250,000 channels between them, are expanded in a few seconds."""
    graph = JobGraph()
    add_sink(graph, add_source(graph, "in", 500), parallelism=500, name="out")
    graph.add_edge(0, 1, partitioner=RebalancePartitioner())
    started = time.process_time()

    plan = expand(graph, "wide")

    assert len(plan.channels) == 250_500
    assert time.process_time() - started < 10


def fingerprint_of(graph: JobGraph) -> str:
    return expand(graph, "job").fingerprint


def base(**options: object) -> JobGraph:
    """source -> map -> sink."""
    graph = JobGraph()
    add_sink(graph, add_behind(graph, add_source(graph), "map", **options))  # type: ignore[arg-type]
    return graph


def test_fingerprint_changes_with_the_structure() -> None:
    """Name, uid, parallelism, max parallelism, partitioner, key type, side tag, chaining: each changes it."""
    tagged = base()
    graphs = [
        base(),
        base(uid="other"),
        base(parallelism=2),
        base(max_parallelism=64),
        base(partitioner=RebalancePartitioner()),
        base(partitioner=HashPartitioner(identity)),
        base(partitioner=HashPartitioner(identity, key_type=INT)),
    ]
    tagged.add_edge(1, add_sink(tagged, name="late"), side_tag="late")
    untagged = base()
    untagged.add_edge(1, add_sink(untagged, name="late"))
    renamed = JobGraph()
    add_sink(renamed, add_behind(renamed, add_source(renamed), "renamed", uid="map"))

    fingerprints = [fingerprint_of(graph) for graph in (*graphs, tagged, untagged, renamed)]

    assert len(set(fingerprints)) == len(fingerprints)


def test_fingerprint_ignores_functions_and_the_name_of_the_job() -> None:
    """The fingerprint leaves out the job's name and what cannot be compared across processes."""
    other = JobGraph()
    source = add_source(other)
    add_sink(other, add_behind(other, source, "map"))
    plan = expand(base(), "one")

    assert plan.fingerprint == expand(other, "two").fingerprint
    assert plan.fingerprint == plan_fingerprint(plan.vertices, plan.edges)
    assert len(plan.fingerprint) == 64


def test_fingerprint_is_the_one_of_earlier_versions() -> None:
    """Checkpoints and recorded runs contain the digest of a plan: an unchanged graph keeps its digest."""
    assert fingerprint_of(base(parallelism=3)) == "fbf03ff145902ee9044dcbde410da94e2fb9228b7cfe427b2f69ee0606496b3b"


def connected(target_input: int = 1) -> JobGraph:
    """One source that feeds both inputs of an operator."""
    graph = JobGraph()
    both = add_behind(graph, add_source(graph), "both", partitioner=HashPartitioner(identity))
    graph.set_inputs(both, 2)
    graph.add_edge(0, both, partitioner=HashPartitioner(identity), target_input=target_input)
    add_sink(graph, both)
    return graph


def test_edges_know_the_input_they_feed() -> None:
    """The second input is told apart in the plan and in its fingerprint; every other edge feeds input 0."""
    assert [edge.target_input for edge in expand(connected(), "job").edges] == [0, 1]
    assert fingerprint_of(connected()) != fingerprint_of(connected(target_input=0))


@given(valid_graphs())
def test_edge_names_are_unique(graph: JobGraph) -> None:
    """What data of channels is filed under: who sends, under which tag, to whom, and which of several equal ones."""
    plan = expand(graph, "job")
    seen: dict[str, int] = {}
    for edge in plan.edges:
        source = plan.vertices[edge.source_vertex].operators[edge.source_position].uid
        stem = f"{source}>{edge.side_tag or ''}>{plan.vertices[edge.target_vertex].operators[0].uid}"
        assert edge.name == f"{stem}#{seen.get(stem, 0)}"
        seen[stem] = seen.get(stem, 0) + 1

    assert len({edge.name for edge in plan.edges}) == len(plan.edges)


def test_edge_names_stay_when_the_graph_grows() -> None:
    """Another operator, and another edge between other operators, changes no name of an edge that was there."""
    before = {edge.name for edge in expand(connected(), "job").edges}
    grown = JobGraph()
    add_sink(grown, add_source(grown, "more"), name="elsewhere", parallelism=2)
    source = add_source(grown)
    both = add_behind(grown, source, "both", partitioner=HashPartitioner(identity))
    grown.set_inputs(both, 2)
    grown.add_edge(source, both, partitioner=HashPartitioner(identity), target_input=1)
    add_sink(grown, both)

    assert before == {"source>>both#0", "source>>both#1"}
    assert before < {edge.name for edge in expand(grown, "job").edges}


@pytest.mark.parametrize(
    ("partitioner", "supported"),
    [
        (HashPartitioner(identity), True),
        (RebalancePartitioner(), True),
        (GlobalPartitioner(), True),
        (CustomPartitioner(first_channel), True),
        (BroadcastPartitioner(), False),
        (RescalePartitioner(), False),
        (ForwardPartitioner(), False),
    ],
)
def test_which_edges_support_unaligned_barriers(partitioner: Partitioner, supported: bool) -> None:
    """One pointwise or broadcast input makes all inputs of its vertex aligned, and those of no other vertex."""
    graph = JobGraph()
    first, second = add_source(graph, "first", 2), add_source(graph, "second", 2)
    union = add_behind(graph, first, "union", 2, RebalancePartitioner())
    graph.add_edge(second, union, partitioner=partitioner)
    other = add_behind(graph, first, "other", 2, RebalancePartitioner())
    add_sink(graph, union, other, parallelism=1)

    edges = expand(graph, "job").edges

    assert [edge.supports_unaligned for edge in edges] == [supported, supported, True, True, True]


def test_max_parallelism_is_derived_unless_declared() -> None:
    """The head of a chain decides; a declared number counts even when it is the derived one. No part of identity."""
    derived, declared = expand(base(), "job"), expand(base(max_parallelism=128), "job")

    assert [vertex.is_max_parallelism_derived for vertex in derived.vertices] == [True]
    assert derived.vertices[0].max_parallelism == declared.vertices[0].max_parallelism == 128
    assert [vertex.is_max_parallelism_derived for vertex in declared.vertices] == [True]
    alone = JobGraph()
    add_sink(alone, add_source(alone, max_parallelism=128))
    assert [vertex.is_max_parallelism_derived for vertex in expand(alone, "job").vertices] == [False]
    assert derived.fingerprint == declared.fingerprint


PROGRAM = """
from tests.graph.test_expansion import base, expand
from engine.graph.explain import explain_mermaid, explain_text
plan = expand(base(parallelism=3), "job")
print(plan.fingerprint, explain_text(plan), explain_mermaid(plan), plan.channels)
"""


def test_plan_is_the_same_in_every_process() -> None:
    """Fingerprint, drawings and channels do not depend on PYTHONHASHSEED."""
    output = printed(PROGRAM, "0")

    assert output == printed(PROGRAM, "1")
    assert fingerprint_of(base(parallelism=3)) in output


def test_plan_is_plain_data() -> None:
    """Runs may share a plan: nothing in it can be changed."""
    plan = expand(base(), "job")

    assert isinstance(plan, ExecutionPlan)
    assert replace(plan) == plan
    assert all(isinstance(part, tuple) for part in (plan.vertices, plan.edges, plan.subtasks, plan.channels))
