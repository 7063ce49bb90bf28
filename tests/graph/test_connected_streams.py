"""Connected and broadcast streams: what they add to the graph, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.errors import JobGraphError
from engine.elements.operator import TwoInputOperator
from engine.graph.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from engine.graph.explain import explain_mermaid, explain_text
from engine.graph.job import Job
from engine.graph.partitioner import BroadcastPartitioner, HashPartitioner
from engine.graph.stream import Stream
from operators.basic import (
    BroadcastProcessFunction,
    BroadcastProcessOperator,
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessFunction,
    CoProcessOperator,
    KeyedBroadcastProcessFunction,
    KeyedBroadcastProcessOperator,
    KeyedCoProcessFunction,
    KeyedCoProcessOperator,
)
from operators.sources import CollectionSource
from state_backends.base import INT, LONG, MapStateDescriptor, ValueStateDescriptor
from tests.graph.graphs import identity


def two(job: Job | None = None) -> tuple[Stream, Stream]:
    job = job or Job("job")
    return (job.source(CollectionSource([1]), name="left"), job.source(CollectionSource([2]), name="right"))


def connected(*, keys: bool = False) -> ConnectedStreams:
    left, right = two()
    streams = left.connect(right)
    return streams.key_by(identity, identity) if keys else streams


def left_with(other: Callable[[Stream], Any], *, keys: bool = False) -> Any:
    """The left stream connected with something made of the right one."""
    left, right = two()
    return (left.key_by(identity) if keys else left).connect(other(right))


def inputs_of(stream: Stream) -> list[tuple[str, int, str]]:
    """Where the operator of a stream gets its records: sender, input, partitioner."""
    graph = stream._job.graph
    return [
        (graph.name_of(edge.source), edge.target_input, edge.partitioner.name)
        for edge in graph.in_edges(stream._outlets[0].node_id)
    ]


def node_of(stream: Stream) -> Any:
    return stream._job.graph.node(stream._outlets[0].node_id)


@pytest.mark.parametrize(
    ("build", "kind", "operator"),
    [
        (lambda: connected().map(identity, identity), "co-map", CoMapOperator),
        (lambda: connected().flat_map(identity, identity), "co-flat-map", CoFlatMapOperator),
        (lambda: connected().process(CoProcessFunction), "co-process", CoProcessOperator),
        (lambda: connected(keys=True).process(CoProcessFunction()), "co-process", CoProcessOperator),
        (lambda: connected(keys=True).process(KeyedCoProcessFunction), "co-process", KeyedCoProcessOperator),
        (lambda: connected().via(TwoInputOperator), "via", TwoInputOperator),
        (
            lambda: left_with(lambda right: right.broadcast("rules")).process(BroadcastProcessFunction),
            "co-process-broadcast",
            BroadcastProcessOperator,
        ),
        (
            lambda: left_with(lambda right: right.broadcast("rules"), keys=True).process(
                KeyedBroadcastProcessFunction()
            ),
            "co-process-broadcast",
            KeyedBroadcastProcessOperator,
        ),
    ],
)
def test_operators_with_two_inputs(build: Callable[[], Stream], kind: str, operator: type) -> None:
    """Each method adds one operator with an edge to each of its inputs, and the job can run."""
    stream = build()
    stream.print()

    assert (node_of(stream).kind, node_of(stream).inputs) == (kind, 2)
    assert type(node_of(stream).factory()) is operator
    assert [(sender, target_input) for sender, target_input, _ in inputs_of(stream)] == [("left", 0), ("right", 1)]
    stream._job.validate()


def test_keys_of_both_streams() -> None:
    """key_by on connected streams keys each with its own function, and both with the declared type."""
    left, right = two()
    stream = left.connect(right).key_by(str, repr, key_type=INT).process(KeyedCoProcessFunction)

    edges = stream._job.graph.in_edges(node_of(stream).id)
    partitioners = [edge.partitioner for edge in edges]
    assert [(one.key, one.key_type) for one in partitioners if isinstance(one, HashPartitioner)] == [
        (str, INT),
        (repr, INT),
    ]
    assert left.key_by(identity).connect(right.key_by(identity)).is_keyed
    assert not left.key_by(identity).connect(right).is_keyed


def test_keyed_streams_of_different_types() -> None:
    """Records that meet under one key must have keys of one type."""
    left, right = two()
    streams = left.key_by(identity, key_type=INT).connect(right.key_by(identity, key_type=LONG))
    streams.process(KeyedCoProcessFunction).print()

    with pytest.raises(JobGraphError, match=r"inputs of operator 'co-process' have different key types \(INT, LONG"):
        left._job.validate()


def test_unions_and_side_outputs_can_be_connected() -> None:
    """Every outlet of either stream gets its edge; a stream may even be connected with itself."""
    left, right = two()
    stream = left.union(right).connect(left.process(print).side_output("odd")).map(identity, identity)
    itself = right.connect(right).map(identity, identity)

    assert inputs_of(stream) == [("left", 0, "forward"), ("right", 0, "forward"), ("process", 1, "forward")]
    assert inputs_of(itself) == [("right", 0, "forward"), ("right", 1, "forward")]


def test_an_operator_with_two_inputs_heads_its_chain() -> None:
    """It is never chained to what it reads, even with forward edges; what follows is chained to it."""
    left, right = two()
    left.connect(right).map(identity, identity, name="both").map(identity).print()

    plan = left._job.plan()

    assert tuple(vertex.name for vertex in plan.vertices) == ("left", "right", "both -> map -> print")
    assert [(edge.target_input, edge.supports_unaligned) for edge in plan.edges] == [(0, False), (1, False)]


def test_broadcast_streams() -> None:
    """Everything goes everywhere on the second input, keyed data by key on the first; no input may be unaligned."""
    job = Job("job", parallelism=3)
    left, right = two(job)
    rules = right.broadcast("rules", MapStateDescriptor("limits"))
    stream = left.key_by(identity).connect(rules).process(KeyedBroadcastProcessFunction)
    stream.print()

    plan = job.plan()
    assert isinstance(rules, BroadcastStream)
    assert rules.state_names == ("rules", "limits")
    assert inputs_of(stream) == [("left", 0, "hash"), ("right", 1, "broadcast")]
    assert plan.vertices[-1].operators[0].keyed
    assert [edge.supports_unaligned for edge in plan.edges] == [False, False]


def test_broadcast_without_a_state_is_a_partitioner() -> None:
    """Without a state, broadcast is a partitioner: the next edge sends every record to every subtask."""
    left, _ = two()
    stream = left.broadcast()

    assert isinstance(stream, Stream)
    assert stream._outlets[0].partitioner == BroadcastPartitioner()


def test_they_say_what_they_are() -> None:
    """Each prints as its kind with the operators before it."""
    left, right = two()
    rules = right.broadcast("rules")

    assert repr(left.connect(right)) == "ConnectedStreams(Stream(left), Stream(right))"
    assert repr(rules) == "BroadcastStream(Stream(right), rules)"
    assert repr(left.connect(rules)) == "BroadcastConnectedStream(Stream(left), BroadcastStream(Stream(right), rules))"
    assert isinstance(left.connect(rules), BroadcastConnectedStream)


def test_drawings_tell_the_inputs_apart() -> None:
    """The edge to the second input says so, in text and in Mermaid."""
    left, right = two()
    left.connect(right).map(identity, identity).print()

    plan = left._job.plan()

    assert "=> [2] co-map   forward, 1 channel\n" in explain_text(plan)
    assert "=> [2] co-map   input 2: forward, 1 channel\n" in explain_text(plan)
    assert 'v1o0 ==>|"input 2: forward, 1 channel"| v2o0' in explain_mermaid(plan)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: left_with(lambda right: 5), "connect: its argument must be a stream, or what stream.broad"),
        (
            lambda: left_with(lambda right: two(Job("other"))[1]),
            "connect: Stream(right) belongs to job 'other', Stream(left) to 'job'\n  fix: build both from the same Job",
        ),
        (
            lambda: left_with(lambda right: two(Job("other"))[1].broadcast("rules")),
            "connect: Stream(right) belongs to job 'other', Stream(left) to 'job'",
        ),
        (lambda: connected().map(identity, 1), "map: fn2 must be a function, not 1"),
        (lambda: connected().map(1, identity), "map: fn1 must be a function, not 1"),
        (lambda: connected().flat_map(identity, 1), "flat_map: fn2 must be a function"),
        (lambda: connected().flat_map(1, identity), "flat_map: fn1 must be a function"),
        (lambda: connected().process(identity), "function must be a CoProcessFunction or KeyedCoProcessFunction"),
        (
            lambda: connected().process(KeyedCoProcessFunction),
            "a KeyedCoProcessFunction keeps state per key, but Stream(left) has no key\n  fix: call .key_by(key1",
        ),
        (
            lambda: left_with(lambda right: right.key_by(identity)).process(KeyedCoProcessFunction()),
            "but Stream(left) has no key",
        ),
        (
            lambda: two()[0].key_by(identity).connect(connected()._first).process(KeyedCoProcessFunction()),
            "connect: Stream(left) belongs to job 'job'",
        ),
        (lambda: connected().key_by(1, identity), "key_by: key must be a function, not 1"),
        (lambda: connected(keys=True).key_by(identity, identity), "is partitioned by key already"),
        (lambda: connected().map(identity, identity, nmae="x"), "co-map has no option nmae=; did you mean name=?"),
        (lambda: connected().via(TwoInputOperator()), "via: TwoInputOperator is one operator, but every subtask"),
        (lambda: two()[0].broadcast("a", "a"), "broadcast: two states have the name 'a'; give each its own"),
        (lambda: two()[0].broadcast(ValueStateDescriptor("a")), "broadcast: a broadcast state is a map, given by"),
        (lambda: two()[0].broadcast(""), "broadcast: a state needs a name"),
        (lambda: two()[0].key_by(identity).broadcast("a"), "KeyedStream(left) is partitioned by key already"),
        (
            lambda: left_with(lambda right: right.broadcast("a")).process(CoProcessFunction),
            "process: function must be a BroadcastProcessFunction or KeyedBroadcastProcessFunction",
        ),
        (
            lambda: left_with(lambda right: right.broadcast("a")).process(KeyedBroadcastProcessFunction),
            "a KeyedBroadcastProcessFunction was given for Stream(left), which has no key\n  fix: call .key_by",
        ),
    ],
)
def test_wrong_use_is_refused_at_the_call(call: Callable[[], Any], message: str) -> None:
    """A call that could never work is refused where it is written, and the error says how to correct it."""
    with pytest.raises(JobGraphError) as caught:
        call()

    assert message in str(caught.value)


def test_a_function_without_keys_is_refused_for_keyed_data() -> None:
    """Its state would not be reachable: keyed data takes the keyed kind of function."""
    left, right = two()
    streams = left.key_by(identity).connect(right.broadcast("rules"))

    with pytest.raises(JobGraphError, match="which has a key\n  fix: derive the function from KeyedBroadcastProcessF"):
        streams.process(BroadcastProcessFunction)
