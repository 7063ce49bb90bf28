"""Every rule that a job graph must keep, by its message."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given

from engine.elements.errors import JobGraphError
from engine.elements.operator import Operator
from engine.graph.job_graph import JobGraph, NodeRole
from engine.graph.partitioner import (
    BroadcastPartitioner,
    ForwardPartitioner,
    HashPartitioner,
    Partitioner,
    RescalePartitioner,
)
from engine.graph.validation import RULES, find_problems, validate
from state_backends.base import INT, LONG, KeyType
from tests.graph.graphs import add_behind, add_sink, add_source, identity, valid_graphs


def only_problem(graph: JobGraph) -> str:
    problems = find_problems(graph)
    assert len(problems) == 1, problems
    return problems[0]


@given(valid_graphs())
def test_valid_graphs_pass(graph: JobGraph) -> None:
    """A graph that keeps every rule is accepted."""
    validate(graph, "job")


def test_no_source() -> None:
    """A job without a source is refused."""
    assert only_problem(JobGraph()) == "it has no source; begin with job.source(...)"


def test_error_names_the_job() -> None:
    """The error that a user sees says which job cannot run."""
    with pytest.raises(JobGraphError, match=r"^job 'empty' cannot run: it has no source; begin with"):
        validate(JobGraph(), "empty")


def test_all_problems_are_told_at_once() -> None:
    """Several problems come as one numbered list."""
    graph = JobGraph()
    add_source(graph, "a", parallelism=0)
    add_source(graph, "b", max_parallelism=0)

    with pytest.raises(JobGraphError) as caught:
        validate(graph, "job")

    lines = str(caught.value).splitlines()
    assert lines[0] == "job 'job' cannot run, 4 problems:"
    assert [line[:5] for line in lines[1:]] == ["  1. ", "  2. ", "  3. ", "  4. "]


def test_duplicate_name() -> None:
    """Two operators with one given name are refused."""
    graph = JobGraph()
    source = add_source(graph, "numbers")
    add_sink(graph, source, name="numbers")

    assert only_problem(graph) == "2 operators have the name 'numbers'; give each its own name=, or none"


def test_duplicate_uid() -> None:
    """Two operators with one given uid are refused, and both are named."""
    graph = JobGraph()
    source = add_source(graph, "a", uid="x")
    add_sink(graph, add_behind(graph, source, "b", uid="x"))

    assert only_problem(graph) == (
        "2 operators have the uid 'x' ('a', 'b'), under which state is filed; give each its own uid="
    )


def test_bad_name_and_bad_uid() -> None:
    """A name or uid that cannot be used is refused for the operator it was given to."""
    graph = JobGraph()
    source = add_source(graph, "a[0]", uid="a/0")
    add_sink(graph, source)

    name, uid = find_problems(graph)

    assert name.startswith("a source operator: name 'a[0]' contains '[', ']' or '->'")
    assert uid.startswith("operator 'a[0]': uid 'a/0' cannot stand in a file name")


@pytest.mark.parametrize("parallelism", [0, -3])
def test_parallelism_below_one(parallelism: int) -> None:
    """An operator has at least one subtask."""
    graph = JobGraph()
    source = add_source(graph)
    add_sink(graph, source, name="out", parallelism=parallelism)

    assert only_problem(graph) == f"operator 'out' has parallelism={parallelism}; it must be at least 1"


@pytest.mark.parametrize("max_parallelism", [0, -1, 32769])
def test_max_parallelism_out_of_range(max_parallelism: int) -> None:
    """Max parallelism is 1..32768."""
    graph = JobGraph()
    add_sink(graph, add_source(graph, "in", max_parallelism=max_parallelism))

    assert only_problem(graph) == (
        f"operator 'in' has max_parallelism={max_parallelism}, outside 1..32768; "
        "choose a number of key groups in that range"
    )


@pytest.mark.parametrize(("max_parallelism", "parallelism"), [(4, 5), (None, 32769)])
def test_parallelism_above_max_parallelism(max_parallelism: int | None, parallelism: int) -> None:
    """More subtasks than key groups are refused, declared or not."""
    graph = JobGraph()
    add_sink(graph, add_source(graph, "in", parallelism, max_parallelism=max_parallelism))

    assert only_problem(graph) == (
        f"operator 'in' has parallelism={parallelism} above its max parallelism {max_parallelism or 32768}: "
        f"some subtasks would own no key group; lower the parallelism to {max_parallelism or 32768} at most"
        f"{', or raise max_parallelism= to 5 at least' if parallelism == 5 else ''}"
    )


def test_a_parallelism_that_is_too_high_is_told_once() -> None:
    """The error comes once, not once for each operator or edge, and names every limit."""
    limit, channels = find_problems(shuffles(100_000, 2))

    assert limit.startswith("operator 'in' (and 3 more) has parallelism=100000")
    assert channels == (
        "20,000,000,000 channels would lead from each subtask to each, 10,000,000,000 of them from the 100000 of 'in' "
        "to the 100000 of 'behind 0'; no more than 1,000,000 can be simulated: lower the parallelism to 707 at most"
    )


@pytest.mark.parametrize(("number", "fits"), [(1, 1_000), (2, 707), (3, 577)])
def test_the_advice_on_parallelism_can_be_followed(number: int, fits: int) -> None:
    """The advised parallelism is accepted, however many shuffles the job has, and the next larger one is not."""
    (problem,) = find_problems(shuffles(20_000, number))

    assert problem.endswith(f"lower the parallelism to {fits} at most")
    assert not find_problems(shuffles(fits, number))
    (problem,) = find_problems(shuffles(fits + 1, number))
    assert problem.endswith(f"lower the parallelism to {fits} at most")


def test_edges_from_subtask_to_subtask_have_few_channels() -> None:
    """Their parallelism may be as high as the number of key groups."""
    graph = JobGraph()
    source = add_source(graph, "in", 32_768)
    rescaled = add_behind(graph, source, "behind", 32_768, RescalePartitioner())
    add_sink(graph, rescaled, parallelism=32_768)

    assert not find_problems(graph)


def shuffles(parallelism: int, number: int) -> JobGraph:
    """A source, operators after it with a channel from each subtask to each, and a sink in the chain of the last."""
    graph = JobGraph()
    last = add_source(graph, "in", parallelism)
    for index in range(number):
        last = add_behind(graph, last, f"behind {index}", parallelism, BroadcastPartitioner())
    add_sink(graph, last, parallelism=parallelism)
    return graph


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(1, 1), (1, 32768), (32768, 32768)])
def test_parallelism_at_the_limits(parallelism: int, max_parallelism: int) -> None:
    """1, and as many subtasks as key groups, are allowed."""
    graph = JobGraph()
    source = add_source(graph, "in", parallelism, max_parallelism=max_parallelism)
    add_sink(graph, source, parallelism=parallelism)

    assert find_problems(graph) == []


def test_dangling_stream() -> None:
    """An operator is refused if no other operator reads its records."""
    graph = JobGraph()
    source = add_source(graph)
    add_sink(graph, source)
    add_behind(graph, source, "lost")

    assert only_problem(graph) == (
        "operator 'lost' leads nowhere: its records would be computed and dropped; "
        "end the stream with .sink(...), .print() or .collect(...)"
    )


def test_side_output_alone_is_no_dangling_stream() -> None:
    """An operator may be there for a side output only."""
    graph = JobGraph()
    source = add_source(graph)
    sink = add_sink(graph)
    graph.add_edge(source, sink, side_tag="late")

    assert find_problems(graph) == []


@pytest.mark.parametrize("requires_key", [False, True])
def test_operator_without_input(requires_key: bool) -> None:
    """An operator without an input is refused, for that reason only."""
    graph = JobGraph()
    add_sink(graph, add_source(graph))
    alone = graph.add_operator("map", Operator, name="alone", requires_key=requires_key)
    add_sink(graph, alone, name="out")

    assert only_problem(graph) == "operator 'alone' has no input; connect a stream to it"


def test_source_with_an_input() -> None:
    """A source has no input."""
    graph = JobGraph()
    first, second = add_source(graph, "first"), add_source(graph, "second")
    graph.add_edge(first, second)
    add_sink(graph, second)

    assert only_problem(graph).startswith("source 'second' has an input from 'first'; a source reads only")


def test_sink_with_an_output() -> None:
    """A sink has no output."""
    graph = JobGraph()
    sink = add_sink(graph, add_source(graph), name="out")
    add_sink(graph, sink, name="further")

    assert only_problem(graph).startswith("sink 'out' feeds 'further'; nothing comes out of a sink")


def test_forward_between_different_parallelisms() -> None:
    """Forward joins subtask i to subtask i, so both sides need the same number."""
    graph = JobGraph()
    source = add_source(graph, "in", parallelism=2)
    add_sink(graph, add_behind(graph, source, "map", 3, ForwardPartitioner()))

    assert only_problem(graph) == (
        "forward edge from 'in' (parallelism 2) to 'map' (parallelism 3): forward joins subtask i "
        "to subtask i; use .rebalance() or .rescale(), or give both the same parallelism"
    )


@pytest.mark.parametrize("keyed_before", [False, True])
def test_keyed_operator_behind_no_key(keyed_before: bool) -> None:
    """An operator with keyed state must follow key_by directly; a key_by further up does not count."""
    graph = JobGraph()
    partitioner = HashPartitioner(identity) if keyed_before else None
    before = add_behind(graph, add_source(graph), "before", partitioner=partitioner)
    add_sink(graph, add_behind(graph, before, "count", requires_key=True))

    assert only_problem(graph) == (
        "operator 'count' keeps state per key but its input is not keyed; call .key_by(...) right before it"
    )


def test_keyed_operator_with_one_input_that_has_no_key() -> None:
    """All inputs of an operator with keyed state must be keyed, not only the first."""
    graph = JobGraph()
    source = add_source(graph)
    count = add_behind(graph, source, "count", partitioner=HashPartitioner(identity), requires_key=True)
    graph.add_edge(source, count)
    add_sink(graph, count)

    assert only_problem(graph).startswith("operator 'count' keeps state per key but its input is not keyed")


@pytest.mark.parametrize("other", [LONG, None])
def test_inputs_with_different_key_types(other: KeyType | None) -> None:
    """Keys of one operator have one type; declared beside undeclared is refused too, since hashes differ."""
    graph = JobGraph()
    source = add_source(graph)
    count = add_behind(graph, source, "count", partitioner=HashPartitioner(identity, key_type=INT))
    graph.add_edge(source, count, partitioner=HashPartitioner(identity, key_type=other))
    add_sink(graph, count)

    assert only_problem(graph) == (
        f"the inputs of operator 'count' have different key types (INT, {other or 'not declared'}); "
        "declare the same key_type= for all of them"
    )


def test_key_types_matter_only_to_keyed_operators() -> None:
    """An operator that also has an unkeyed input owns no keyed state, so its key types need not agree."""
    graph = JobGraph()
    source = add_source(graph)
    both = add_behind(graph, source, "both", partitioner=HashPartitioner(identity, key_type=INT))
    graph.add_edge(source, both, partitioner=HashPartitioner(identity, key_type=LONG))
    graph.add_edge(source, both)
    add_sink(graph, both)

    assert find_problems(graph) == []


def two_inputs(first: Partitioner | None, *second: Partitioner | None) -> JobGraph:
    """An operator with keyed state and two inputs."""
    graph = JobGraph()
    source = add_source(graph)
    both = add_behind(graph, source, "both", partitioner=first, requires_key=True)
    graph.set_inputs(both, 2)
    for partitioner in second:
        graph.add_edge(source, both, partitioner=partitioner, target_input=1)
    add_sink(graph, both)
    return graph


def test_an_input_that_nothing_leads_to() -> None:
    """An operator with two inputs needs an edge to both."""
    assert only_problem(two_inputs(HashPartitioner(identity))) == (
        "operator 'both' has 2 inputs, but nothing leads to input 2; connect the two streams with first.connect(second)"
    )


def test_an_input_that_is_not_there() -> None:
    """An edge to the second input of an operator that has one would feed the wrong method."""
    graph = JobGraph()
    source = add_source(graph)
    one = add_behind(graph, source, "one")
    graph.add_edge(source, one, target_input=1)
    add_sink(graph, one)

    assert only_problem(graph) == (
        "the edge from 'source' leads to input 2 of operator 'one', which has one input; "
        "connect the two streams with first.connect(second)"
    )


@pytest.mark.parametrize(
    ("first", "second", "keyed"),
    [
        (HashPartitioner(identity), [HashPartitioner(identity)], True),
        (HashPartitioner(identity), [BroadcastPartitioner()], True),
        (HashPartitioner(identity), [BroadcastPartitioner(), BroadcastPartitioner()], True),
        (HashPartitioner(identity), [BroadcastPartitioner(), HashPartitioner(identity)], False),
        (HashPartitioner(identity), [None], False),
        (None, [HashPartitioner(identity)], False),
        (BroadcastPartitioner(), [HashPartitioner(identity)], False),
    ],
)
def test_two_inputs_are_keyed_together(first: Partitioner, second: list[Partitioner], keyed: bool) -> None:
    """Either both inputs are keyed, or the first is and the second is a broadcast: else there is no keyed state."""
    graph = two_inputs(first, *second)

    assert graph.is_keyed(1) == keyed
    assert bool(find_problems(graph)) != keyed


def test_two_inputs_with_different_key_types() -> None:
    """Keys that share one state have one type, whichever input they come through."""
    graph = two_inputs(HashPartitioner(identity, key_type=INT), HashPartitioner(identity, key_type=LONG))

    assert only_problem(graph).startswith("the inputs of operator 'both' have different key types (INT, LONG)")


def test_cycle_is_found_with_its_path() -> None:
    """Records would run in a circle: the message names the whole cycle."""
    graph = JobGraph()
    source = add_source(graph)
    first = add_behind(graph, source, "first")
    second = add_behind(graph, first, "second")
    third = add_behind(graph, second, "third")
    graph.add_edge(third, first)
    add_sink(graph, third)

    assert only_problem(graph) == (
        "records would run in a circle: 'first' -> 'second' -> 'third' -> 'first'; "
        "begin a loop with stream.iterate() and lead its records back with iteration.close_with(feedback), or remove "
        "one of the edges"
    )


def test_operator_feeding_itself() -> None:
    """The shortest circle is found as well."""
    graph = JobGraph()
    loop = add_behind(graph, add_source(graph), "loop")
    graph.add_edge(loop, loop)
    add_sink(graph, loop)

    assert only_problem(graph).startswith("records would run in a circle: 'loop' -> 'loop';")


def test_edge_to_an_unknown_operator() -> None:
    """An edge needs two operators of the graph."""
    graph = JobGraph()
    source = add_source(graph)

    with pytest.raises(JobGraphError, match="edge 0 -> 5: this graph has no operator 5"):
        graph.add_edge(source, 5)


def test_every_rule_is_needed() -> None:
    """For each rule there is a graph that only this rule refuses."""

    def empty() -> JobGraph:
        return JobGraph()

    def labels() -> JobGraph:
        graph = JobGraph()
        add_sink(graph, add_source(graph, "same"), name="same")
        return graph

    def ranges() -> JobGraph:
        graph = JobGraph()
        add_sink(graph, add_source(graph, parallelism=0), parallelism=0)
        return graph

    def roles() -> JobGraph:
        graph = JobGraph()
        add_source(graph)
        return graph

    def forward() -> JobGraph:
        graph = JobGraph()
        add_sink(graph, add_behind(graph, add_source(graph), "map", 2, ForwardPartitioner()))
        return graph

    def inputs() -> JobGraph:
        graph = JobGraph()
        both = add_behind(graph, add_source(graph), "both")
        graph.set_inputs(both, 2)
        add_sink(graph, both)
        return graph

    def keys() -> JobGraph:
        graph = JobGraph()
        add_sink(graph, add_behind(graph, add_source(graph), "count", requires_key=True))
        return graph

    def cycle() -> JobGraph:
        graph = JobGraph()
        loop = graph.add_operator("map", Operator, role=NodeRole.TRANSFORM)
        graph.add_edge(loop, loop)
        add_sink(graph, add_source(graph), loop)
        return graph

    def feedback() -> JobGraph:
        graph = JobGraph()
        first = add_behind(graph, add_source(graph), "first")
        second = add_behind(graph, first, "second")
        graph.add_edge(second, first, is_feedback=True)
        add_sink(graph, second)
        return graph

    def iteration() -> JobGraph:
        graph = JobGraph()
        head = add_behind(graph, add_source(graph), "head")
        graph.set_iteration_head(head)
        add_sink(graph, head)
        return graph

    wide = partial(shuffles, 1_001, 1)
    makers = (empty, labels, ranges, wide, roles, forward, inputs, keys, cycle, feedback, iteration)
    graphs = [make() for make in makers]

    broken = [[index for index, rule in enumerate(RULES) if list(rule(graph))] for graph in graphs]

    assert broken == [[index] for index in range(len(RULES))]
