"""The fluent API: what each method adds to the graph, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.errors import JobGraphError
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.graph.job_graph import ChainingStrategy, NodeRole
from engine.graph.keyed_stream import KeyedStream
from engine.graph.partitioner import GlobalPartitioner, HashPartitioner, RebalancePartitioner
from engine.graph.stream import NotKeyedError, Stream
from operators.basic import (
    AggregateFunction,
    CollectedResults,
    CollectSink,
    FilterOperator,
    FlatMapOperator,
    KeyedAggregateOperator,
    KeyedProcessFunction,
    KeyedProcessOperator,
    MapOperator,
    ProcessFunction,
    ProcessOperator,
    ReduceOperator,
)
from operators.basic.aggregates import count
from operators.sources import CollectionSource, SourceOperator
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows, WindowOperator
from state_backends.base import LONG
from tests.graph.graphs import identity


def numbers(job: Job, **options: Any) -> Stream:
    return job.source(CollectionSource([1, 2]), **options)


def key_by_identity(stream: Stream) -> KeyedStream:
    return stream.key_by(identity)


def last_node(job: Job) -> Any:
    return job.graph.nodes()[-1]


def last_edge(job: Job) -> Any:
    return job.graph.edges()[-1]


class OneRow:
    """A transform that can only run with one subtask and reads everything there."""

    name = "one-row"
    parallelism = 1
    max_parallelism = 1
    partitioner = GlobalPartitioner()

    def create_operator(self) -> Operator:
        return Operator()


class PerKey:
    """A transform that brings its own key."""

    name = "per-key"
    requires_key = True
    key_type = LONG

    def key(self, value: int) -> int:
        return value

    def create_operator(self) -> Operator:
        return Operator()


def test_word_count_reads_like_one() -> None:
    """A whole job in one expression, with made names, and a plan at the end."""
    into: list[Any] = []
    job = (
        Job("word-count", parallelism=2)
        .source(CollectionSource(["a b", "a"]))
        .flat_map(str.split)
        .key_by(identity, value=lambda word: (word, 1))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .collect(into, parallelism=1)
    )

    assert tuple(vertex.name for vertex in job.plan().vertices) == ("source -> flat-map", "reduce", "collect")
    assert job.explain().startswith("job word-count: 3 vertices, 5 subtasks, 6 channels\n")
    assert job.explain("mermaid").startswith("flowchart LR\n")


@pytest.mark.parametrize(
    ("build", "kind", "operator"),
    [
        (lambda s: s.map(identity), "map", MapOperator),
        (lambda s: s.flat_map(identity), "flat-map", FlatMapOperator),
        (lambda s: s.filter(identity), "filter", FilterOperator),
        (lambda s: s.process(lambda value, ctx: [value]), "process", ProcessOperator),
        (lambda s: s.process(ProcessFunction), "process", ProcessOperator),
        (lambda s: key_by_identity(s).reduce(max), "reduce", ReduceOperator),
        (lambda s: key_by_identity(s).aggregate(count()), "aggregate", KeyedAggregateOperator),
        (lambda s: key_by_identity(s).process(KeyedProcessFunction()), "process", KeyedProcessOperator),
        (lambda s: key_by_identity(s).process(lambda value, ctx: []), "process", KeyedProcessOperator),
        (lambda s: windowed(s).reduce(max), "window", WindowOperator),
        (lambda s: windowed(s).aggregate(count(), lambda k, w, r: r), "window", WindowOperator),
        (lambda s: windowed(s).process(lambda k, w, values: values), "window", WindowOperator),
    ],
)
def test_transforms(build: Callable[[Stream], Stream], kind: str, operator: type) -> None:
    """Each method adds one operator of its kind, fresh at every call of the factory, with a name of its kind."""
    job = Job("job")
    stream = build(numbers(job))
    node = last_node(job)

    assert (node.kind, node.role, len(job.graph.nodes())) == (kind, NodeRole.TRANSFORM, 2)
    made = node.factory(), node.factory()
    assert [type(one) for one in made] == [operator, operator]
    assert made[0] is not made[1]
    assert node.requires_key is isinstance(last_edge(job).partitioner, HashPartitioner)
    assert repr(stream) == f"Stream({kind})"


def windowed(stream: Stream) -> Any:
    """Keyed by the record itself, in windows of a second."""
    return key_by_identity(stream).window(TumblingEventTimeWindows.of(1000))


def test_timestamps() -> None:
    """Both ways to assign timestamps add an operator that makes the strategy's watermarks."""
    job = Job("job")
    strategy = WatermarkStrategy.for_monotonous_timestamps(identity)  # type: ignore[arg-type]
    numbers(job).assign_timestamps_and_watermarks(strategy).assign_timestamps(lambda value: value)

    names = [job.graph.name_of(node.id) for node in job.graph.nodes()]
    assert names == ["source", "timestamps", "timestamps-2"]
    assert type(last_node(job).factory()).__name__ == "TimestampsAndWatermarksOperator"


def test_source_with_watermarks() -> None:
    """A source makes a source operator that knows the strategy."""
    job = Job("job")
    numbers(job, watermarks=WatermarkStrategy.for_monotonous_timestamps(lambda value: value), name="in")

    node = last_node(job)
    assert (node.role, node.declared_name) == (NodeRole.SOURCE, "in")
    assert isinstance(node.factory(), SourceOperator)


def test_functions_are_left_alone() -> None:
    """Selectors and functions arrive in the graph as the very objects that the user wrote."""
    job = Job("job")

    def key(value: int) -> int:
        return value

    def choose(value: int, channels: int) -> int:
        return 0

    def value_of(record: int) -> int:
        return record

    keyed = numbers(job).key_by(key, value=value_of, key_type=LONG)
    keyed.map(identity)
    partitioner = last_edge(job).partitioner
    assert (partitioner.key, partitioner.value, partitioner.key_type) == (key, value_of, LONG)

    numbers(job).partition_custom(choose).map(identity)
    assert last_edge(job).partitioner.choose is choose

    assert last_node(job).factory.args == (identity,)
    assert {vars(function) == {} for function in (key, value_of, choose)} == {True}


def test_options_reach_the_operator() -> None:
    """name, uid, parallelism, max_parallelism and chain are kept."""
    job = Job("job", parallelism=4, max_parallelism=64)
    numbers(job).map(identity, name="n", uid="u", parallelism=2, max_parallelism=16, chain=False)
    source, node = job.graph.nodes()

    assert (source.parallelism, source.declared_max_parallelism) == (4, 64)
    assert (node.declared_name, node.declared_uid) == ("n", "u")
    assert (node.parallelism, node.declared_max_parallelism) == (2, 16)
    assert node.chaining is ChainingStrategy.NEVER


def test_options_may_be_none() -> None:
    """None is the same as leaving an option out."""
    job = Job("job", parallelism=4)
    numbers(job).map(identity, name=None, uid=None, parallelism=None, max_parallelism=None)

    node = last_node(job)
    assert (node.parallelism, node.declared_max_parallelism) == (4, None)
    assert job.graph.labels()[node.id].uid == "map"


def test_chaining_methods() -> None:
    """start_new_chain and disable_chaining act on the operator before them."""
    job = Job("job")
    numbers(job).map(identity).start_new_chain().map(identity).disable_chaining().map(identity)

    assert [node.chaining.value for node in job.graph.nodes()] == ["always", "head", "never", "always"]


@pytest.mark.parametrize("method", ["forward", "rebalance", "rescale", "broadcast", "global_"])
def test_partitioners(method: str) -> None:
    """A partitioner stands on the next edge and nowhere else."""
    job = Job("job")
    getattr(numbers(job), method)().map(identity, parallelism=3).map(identity, parallelism=3)

    first, second = job.graph.edges()
    assert first.partitioner.name == method.rstrip("_")
    assert second.partitioner.name == "forward"


def test_default_partitioner() -> None:
    """Forward between equal parallelisms, rebalance otherwise."""
    job = Job("job")
    numbers(job).map(identity).map(identity, parallelism=2)

    assert [edge.partitioner.name for edge in job.graph.edges()] == ["forward", "rebalance"]


def test_later_partitioner_replaces_the_earlier() -> None:
    """As in Flink, only the last of several partitioners counts."""
    job = Job("job")
    numbers(job).rebalance().broadcast().map(identity)

    assert last_edge(job).partitioner.name == "broadcast"


def test_union_is_several_edges() -> None:
    """A union adds no operator; each input keeps its own partitioner."""
    job = Job("job")
    first, second = numbers(job), numbers(job)
    first.union(second.rebalance(), first).map(identity)

    assert [(edge.source, edge.target, edge.partitioner.name) for edge in job.graph.edges()] == [
        (0, 2, "forward"),
        (1, 2, "rebalance"),
        (0, 2, "forward"),
    ]


def test_union_of_keyed_streams_can_be_mapped() -> None:
    """A union is no keyed stream, even of keyed ones, but its edges stay as they were."""
    job = Job("job")
    union = key_by_identity(numbers(job)).union(key_by_identity(numbers(job)))

    assert type(union) is Stream
    union.map(identity)
    assert [edge.partitioner.name for edge in job.graph.edges()] == ["hash", "hash"]


def test_side_output() -> None:
    """A side output is an edge with a tag, beside the main output."""
    job = Job("job")
    stream = numbers(job)
    stream.side_output("late").map(identity)
    stream.map(identity)

    assert [edge.side_tag for edge in job.graph.edges()] == ["late", None]


def test_window_options() -> None:
    """Lateness and the tag of late records reach the window operator; the setters change nothing themselves."""
    job = Job("job")
    plain = windowed(numbers(job))
    plain.allowed_lateness(50).side_output_late("late").reduce(max)
    assert last_node(job).factory.args[3:] == (50, "late")

    plain.allowed_lateness(0).reduce(max)
    plain.reduce(max)
    assert last_node(job).factory.args[3:] == (0, None)


def test_via_meets_the_demands_of_a_transform() -> None:
    """Parallelism, partitioner, key and key type of a transform are met; its name is the stem of the operator's."""
    job = Job("job", parallelism=3)
    numbers(job).via(OneRow()).via(OneRow())
    first = job.graph.nodes()[1]
    assert first.declared_max_parallelism == 1
    assert (first.parallelism, job.graph.name_of(first.id), job.graph.name_of(2)) == (1, "one-row", "one-row-2")
    assert job.graph.edges()[0].partitioner.name == "global"

    numbers(job).via(PerKey())
    assert last_node(job).requires_key
    assert last_edge(job).partitioner.name == "hash"
    assert last_edge(job).partitioner.key_type == LONG


@pytest.mark.parametrize("route", [lambda s: s.rebalance(), lambda s: s.key_by(identity)])
def test_via_keeps_the_partitioner_that_was_asked_for(route: Callable[[Stream], Stream]) -> None:
    """A transform without demands takes its input as the stream before says."""
    job = Job("job")
    stream = route(numbers(job))
    stream.via(Operator)
    stream.map(identity)

    first, second = job.graph.edges()
    assert first.partitioner == second.partitioner


def test_via_takes_a_function_that_makes_operators() -> None:
    """A class of operators, or any function that returns one, will do."""
    job = Job("job")
    numbers(job).via(Operator, name="own").sink(lambda: Operator())  # noqa: PLW0108 - any function

    assert job.graph.nodes()[1].factory is Operator
    assert last_node(job).role is NodeRole.SINK


def test_sinks() -> None:
    """sink, print and collect end a stream and give the job back."""
    job, into = Job("job"), []
    stream = numbers(job)

    assert stream.sink(CollectSink(into), name="mine") is job
    assert stream.print() is job
    assert stream.collect(into) is job
    assert stream.collect(CollectedResults()) is job
    assert [node.role for node in job.graph.nodes()[1:]] == [NodeRole.SINK] * 4
    assert isinstance(last_node(job).factory(), Operator)


def test_plan_is_cached_until_the_job_changes() -> None:
    """The same plan object comes back, and another one after a change."""
    job = Job("job")
    stream = numbers(job)
    stream.print()
    first = job.plan()

    assert job.plan() is first
    stream.print()
    assert job.plan() is not first
    assert len(job.plan().operators()) == 3


def test_invalid_job_has_no_plan() -> None:
    """plan, validate and explain refuse a job that cannot run."""
    job = Job("job")
    numbers(job)

    for method in (job.validate, job.plan, job.explain):
        with pytest.raises(JobGraphError, match="operator 'source' leads nowhere"):
            method()


# --- what is refused at the call ---------------------------------------------------------------------------


def refused(call: Callable[[Job], Any]) -> str:
    with pytest.raises(JobGraphError) as caught:
        call(Job("job"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda j: numbers(j).map(5), "map: fn must be a function, not 5 of type int"),
        (lambda j: numbers(j).flat_map(None), "flat_map: fn must be a function"),
        (lambda j: numbers(j).filter("x"), "filter: fn must be a function"),
        (lambda j: numbers(j).process(1), "process: function must be a function, or an object with process_e"),
        (lambda j: numbers(j).key_by("name"), "key_by: key must be a function, not 'name' of type str"),
        (lambda j: numbers(j).key_by(identity, value=1), "key_by: value must be a function"),
        (lambda j: numbers(j).key_by(identity, key_type=int), "key_by: key_type must be of type KeyType"),
        (lambda j: key_by_identity(numbers(j)).reduce(1), "reduce: fn must be a function"),
        (lambda j: key_by_identity(numbers(j)).aggregate(max), "must be of type AggregateFunction"),
        (lambda j: key_by_identity(numbers(j)).process(1), "process: function must be a function"),
        (lambda j: key_by_identity(numbers(j)).window(1000), "window: assigner must be of type WindowAssigner"),
        (lambda j: windowed(numbers(j)).allowed_lateness(-1), "lateness_ms=-1 is negative; give 0 or more"),
        (lambda j: windowed(numbers(j)).allowed_lateness(1.5), "lateness_ms must be a whole number, not 1.5"),
        (lambda j: windowed(numbers(j)).side_output_late(1), "side_output_late: tag must be of type str"),
        (lambda j: windowed(numbers(j)).reduce(1), "reduce: fn must be a function"),
        (lambda j: windowed(numbers(j)).reduce(max, 1), "window_function must be a function"),
        (lambda j: windowed(numbers(j)).aggregate(max), "must be of type AggregateFunction"),
        (lambda j: windowed(numbers(j)).process(1), "process: function must be a function"),
        (lambda j: numbers(j).partition_custom(1), "partition_custom: choose must be a function"),
        (lambda j: numbers(j).assign_timestamps(1), "timestamp_fn must be a function"),
        (lambda j: numbers(j).assign_timestamps_and_watermarks(identity), "must be of type WatermarkStrategy"),
        (lambda j: numbers(j, watermarks=identity), "watermarks must be of type WatermarkStrategy"),
        (lambda j: j.source([1, 2]), "source: source must have splits() and open_split(), which [1, 2]"),
        (lambda j: j.source(CollectionSource), "must be an object, not the class CollectionSource\n"),
        (lambda j: numbers(j).side_output(1), "side_output: tag must be of type str, not 1"),
        (lambda j: numbers(j).union(), "union: there is no other stream to join"),
        (lambda j: numbers(j).union([numbers(j)]), "union: every argument must be of type Stream"),
        (lambda j: numbers(j).map(identity, nmae="x"), "map has no option nmae=; did you mean name=?"),
        (lambda j: numbers(j).map(identity, zzz=1), "map has no option zzz=; it takes name=, uid=, parall"),
        (lambda j: numbers(j, paralelism=1), "source has no option paralelism=; did you mean parallelism=?"),
        (lambda j: numbers(j).map(identity, parallelism="2"), "map: parallelism must be a whole number, not '2'"),
        (lambda j: numbers(j).map(identity, max_parallelism=True), "max_parallelism must be a whole number"),
        (lambda j: numbers(j).map(identity, chain=1), "map: chain= must be of type bool"),
        (lambda j: numbers(j).via(OneRow(), parallelism=2), "'one-row' demands parallelism=1, the call asks for"),
        (lambda j: numbers(j).collect(()), "collect: into must be of type list, not () of type tuple"),
        (lambda j: numbers(j).via(OneRow), "via: its argument must be an object, not the class OneRow\n"),
        (lambda j: numbers(j).via(7), "via: 7 of type int makes no operator"),
        (lambda j: numbers(j).sink(Operator()), "sink: Operator is one operator, but every subtask"),
        (lambda j: numbers(j).print().explain("png"), "there is no format 'png'; use 'text', 'mermaid' or 'svg'"),
        (lambda j: Job(""), "Job: name '' is blank"),
        (lambda j: Job("a/b"), "Job: name 'a/b' cannot be the name of a directory"),
        (lambda j: Job("a\\b"), "cannot be the name of a directory"),
        (lambda j: Job(".hidden"), "cannot be the name of a directory"),
        (lambda j: Job("j", parallelism=1.0), "Job: parallelism must be a whole number, not 1.0"),
        (lambda j: Job("j", max_parallelism="x"), "Job: max_parallelism must be a whole number"),
    ],
)
def test_bad_arguments(call: Callable[[Job], Any], message: str) -> None:
    """The call itself refuses what cannot be written into the graph, and says what is wrong."""
    assert message in refused(call)


def test_transform_with_an_unusable_name() -> None:
    """A transform whose own name would make subtask names ambiguous is refused."""

    class Odd(OneRow):
        name = "a -> b"

    assert "via: Odd: name 'a -> b' contains" in refused(lambda job: numbers(job).via(Odd()))


def test_union_across_jobs() -> None:
    """Streams of two jobs cannot be joined; both jobs are named."""
    other = numbers(Job("other"))

    assert refused(lambda job: numbers(job).union(other)) == (
        "union: Stream(source) belongs to job 'other', Stream(source) to 'job'\n"
        "  fix: build both from the same Job object; records do not cross jobs"
    )


@pytest.mark.parametrize("method", ["reduce", "aggregate", "window", "count_window"])
def test_keyed_methods_without_a_key(method: str) -> None:
    """Calling a method of keyed streams on another says to call key_by, and hasattr still works."""
    stream = numbers(Job("job"))

    with pytest.raises(NotKeyedError, match=rf"fix: call \.key_by\(\.\.\.\) right before \.{method}\("):
        getattr(stream, method)
    assert not hasattr(stream, method)
    with pytest.raises(AttributeError, match="has no attribute 'mapp'"):
        stream.mapp  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [lambda s: s.rebalance(), lambda s: s.key_by(identity), lambda s: s.via(OneRow())])
def test_key_is_not_lost_silently(change: Callable[[Stream], Any]) -> None:
    """Routing a keyed stream anew would undo key_by and is refused."""
    message = refused(lambda job: change(key_by_identity(numbers(job))))

    assert "is partitioned by key already" in message


@pytest.mark.parametrize(
    "make", [lambda s: s.union(s), lambda s: s.rebalance(), lambda s: s.side_output("a"), lambda s: s.key_by(identity)]
)
@pytest.mark.parametrize("use", [lambda s: s.side_output("b"), lambda s: s.start_new_chain()])
def test_only_an_operator_has_side_outputs(make: Callable[[Stream], Stream], use: Callable[[Stream], Any]) -> None:
    """A method that acts on the operator before needs exactly one operator before."""
    message = refused(lambda job: use(make(numbers(job))))

    assert "is not the direct output of one operator" in message


def test_explicit_forward_is_checked() -> None:
    """forward() between different parallelisms is refused by validation, from the fluent API too."""
    job = Job("job")
    numbers(job).forward().map(identity, parallelism=2).print(parallelism=2)

    with pytest.raises(JobGraphError, match="forward edge from 'source'"):
        job.validate()


def test_rebalance_between_equals_is_kept() -> None:
    """A partitioner that was asked for is never optimised away."""
    job = Job("job")
    numbers(job).rebalance().map(identity).print()

    assert isinstance(job.plan().edges[0].partitioner, RebalancePartitioner)


def test_aggregate_function_is_what_operators_define() -> None:
    """The ready-made aggregates are aggregate functions."""
    assert isinstance(count(), AggregateFunction)
