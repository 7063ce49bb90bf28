"""Windows in the fluent API: which operator does the work, and what is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.errors import JobGraphError
from engine.graph.job import Job
from engine.graph.job_graph import StreamNode
from engine.graph.keyed_stream import KeyedStream
from engine.graph.stream import Stream
from operators.basic import AggregateFunction
from operators.basic.aggregates import count
from operators.sources import CollectionSource
from operators.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessAllWindowFunction,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    SlidingWindowOperator,
    TriggeredWindowOperator,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowOperator,
)
from state_backends.base import LONG
from tests.graph.graphs import identity

TUMBLING = TumblingEventTimeWindows.of(10)
SLIDING = SlidingEventTimeWindows.of(10, 5)
SESSIONS = EventTimeSessionWindows.with_gap(10)
BY_CLOCK = TumblingProcessingTimeWindows.of(10)


def keyed() -> KeyedStream:
    """A keyed stream of a job of its own."""
    return records().key_by(identity)


def records(**job_options: Any) -> Stream:
    return Job("job", **job_options).source(CollectionSource([1, 2]))


def node_of(stream: Stream) -> StreamNode:
    return stream._job.graph.node(stream._outlets[0].node_id)


def operator_of(stream: Stream) -> Any:
    return node_of(stream).factory()


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (lambda: keyed().window(TUMBLING).reduce(max), WindowOperator),
        (lambda: keyed().window(TUMBLING).trigger(EventTimeTrigger()).aggregate(count()), WindowOperator),
        (lambda: keyed().window(TUMBLING).process(lambda key, window, values: values), WindowOperator),
        (lambda: keyed().window(SLIDING).reduce(max), SlidingWindowOperator),
        (lambda: keyed().window(SLIDING).allowed_lateness(5).aggregate(count()), SlidingWindowOperator),
        (lambda: keyed().window(TUMBLING).trigger(CountTrigger.of(1)).reduce(max), TriggeredWindowOperator),
        (lambda: keyed().window(SLIDING).evictor(CountEvictor.of(1)).reduce(max), TriggeredWindowOperator),
        (lambda: keyed().window(TUMBLING).process(ProcessWindowFunction), TriggeredWindowOperator),
        (lambda: keyed().window(TUMBLING).process(ProcessWindowFunction()), TriggeredWindowOperator),
        (lambda: keyed().window(SESSIONS).reduce(max), TriggeredWindowOperator),
        (lambda: keyed().window(GlobalWindows.create()).reduce(max), TriggeredWindowOperator),
        (lambda: keyed().window(BY_CLOCK).reduce(max), TriggeredWindowOperator),
        (lambda: keyed().window(SlidingProcessingTimeWindows.of(10, 5)).reduce(max), TriggeredWindowOperator),
        (lambda: keyed().window(ProcessingTimeSessionWindows.with_gap(1)).reduce(max), TriggeredWindowOperator),
    ],
)
def test_which_operator_does_the_work(build: Callable[[], Stream], operator: type) -> None:
    """Aligned event-time windows with the default trigger are computed by batch, all others record by record."""
    stream = build()

    assert type(operator_of(stream)) is operator
    assert (node_of(stream).kind, node_of(stream).requires_key) == ("window", True)


def test_settings_reach_the_operator() -> None:
    """Every setter returns a stream with its setting and leaves the one before as it is."""
    plain = keyed().window(SESSIONS)
    trigger, evictor = PurgingTrigger.of(CountTrigger.of(2)), CountEvictor.of(3)
    full = plain.trigger(trigger).evictor(evictor).allowed_lateness(5).side_output_late("late")

    settings = node_of(full.reduce(max)).factory
    assert settings.args == (SESSIONS, max, None, 5, "late")  # type: ignore[attr-defined]
    assert settings.keywords == {"process_function": None, "trigger": trigger, "evictor": evictor}  # type: ignore[attr-defined]
    untouched = node_of(plain.reduce(max)).factory
    assert untouched.args == (SESSIONS, max, None, 0, None)  # type: ignore[attr-defined]
    assert untouched.keywords["trigger"] is None  # type: ignore[attr-defined]


def test_aggregate_with_a_process_function() -> None:
    """reduce and aggregate take a function that makes any number of records of the result."""
    function = ProcessWindowFunction()
    for stream in (
        keyed().window(TUMBLING).reduce(max, process_function=function),
        keyed().window(TUMBLING).aggregate(count(), process_function=function),
    ):
        assert node_of(stream).factory.keywords["process_function"] is function  # type: ignore[attr-defined]
    by_batch = keyed().window(TUMBLING).reduce(max, process_function=lambda key, window, result: [result])
    assert type(operator_of(by_batch)) is WindowOperator


def test_count_windows() -> None:
    """Windows of so many records are global windows with a count trigger, and an evictor when they slide."""
    tumbling, sliding = keyed().count_window(3), keyed().count_window(3, 2)

    assert isinstance(tumbling._assigner, GlobalWindows)
    assert isinstance(tumbling._trigger, PurgingTrigger)
    assert isinstance(tumbling._trigger.trigger, CountTrigger)
    assert (tumbling._trigger.trigger.count, tumbling._evictor) == (3, None)
    assert isinstance(sliding._trigger, CountTrigger)
    assert isinstance(sliding._evictor, CountEvictor)
    assert (sliding._trigger.count, sliding._evictor.max_count) == (2, 3)


def test_windows_over_all_records_are_not_parallel() -> None:
    """They run in one subtask, whatever the job's parallelism, and every record has the same key."""
    stream = records(parallelism=4, max_parallelism=64).window_all(TUMBLING).reduce(max)
    stream.print()
    plan = stream._job.plan()

    node = node_of(stream)
    assert (node.kind, node.parallelism, node.declared_max_parallelism) == ("window-all", 1, 1)
    (vertex,) = [one for one in plan.vertices if one.operators[0].uid == "window-all"]
    assert (vertex.operators[0].keyed, vertex.operators[0].key_type) == (True, LONG)


def test_functions_of_windows_over_all_records_get_no_key() -> None:
    """Plain functions are called without the key; classes of functions without one are taken."""
    windows = records().window_all(TUMBLING)
    shapes = [
        (windows.reduce(max, lambda window, result: (window, result)), (("w", 5),)),
        (windows.aggregate(count(), lambda window, result: (window, result)), (("w", 5),)),
    ]
    for stream, expected in shapes:
        function = node_of(stream).factory.args[2]  # type: ignore[attr-defined]
        assert (function("key", "w", 5),) == expected
    process = node_of(windows.process(lambda window, values: [window, *values])).factory
    assert process.keywords["process_function"]("key", "w", [5]) == ["w", 5]  # type: ignore[attr-defined]
    for function in (ProcessAllWindowFunction, ProcessAllWindowFunction()):
        assert isinstance(operator_of(windows.process(function)), TriggeredWindowOperator)


NO_MERGE = AggregateFunction(int, lambda acc, value: acc + value, identity)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: keyed().window(TumblingEventTimeWindows), "assigner must be an object, not the class Tumbling"),
        (lambda: records().window_all(10), "window_all: assigner must be of type WindowAssigner, not 10"),
        (lambda: records().window_all(SESSIONS).trigger(CountTrigger), "must be an object, not the class CountTrigger"),
        (lambda: keyed().window(TUMBLING).trigger(3), "trigger: its argument must be of type Trigger, not 3"),
        (lambda: keyed().window(TUMBLING).evictor(3), "evictor: its argument must be of type Evictor, not 3"),
        (
            lambda: keyed().window(SESSIONS).trigger(NeverTrigger()),
            "trigger: EventTimeSessionWindows merges windows, which NeverTrigger does not support\n"
            "  fix: define can_merge() and on_merge(window, ctx)",
        ),
        (
            lambda: keyed().window(SESSIONS).trigger(PurgingTrigger.of(NeverTrigger())),
            "merges windows, which PurgingTrigger does not support",
        ),
        (
            lambda: keyed().window(BY_CLOCK).trigger(EventTimeTrigger()),
            "trigger: TumblingProcessingTimeWindows end with the virtual clock and are cleaned up then, but",
        ),
        (
            lambda: keyed().window(BY_CLOCK).allowed_lateness(5),
            "allowed_lateness: TumblingProcessingTimeWindows take a record's time from the virtual clock, by which",
        ),
        (lambda: keyed().window(BY_CLOCK).side_output_late("late"), "side_output_late: TumblingProcessingTimeWi"),
        (
            lambda: keyed().window(SESSIONS).aggregate(NO_MERGE),
            "aggregate: EventTimeSessionWindows merge windows, and the aggregate function has no merge\n"
            "  fix: give it merge=",
        ),
        (lambda: records().window_all(SESSIONS).aggregate(NO_MERGE), "the aggregate function has no merge"),
        (lambda: records().window_all(TUMBLING).aggregate(max), "must be of type AggregateFunction"),
        (lambda: records().window_all(TUMBLING).reduce(1), "reduce: fn must be a function"),
        (lambda: records().window_all(TUMBLING).reduce(max, 1), "window_function must be a function"),
        (lambda: records().window_all(TUMBLING).process(1), "process: function must be a function"),
        (
            lambda: records().window_all(TUMBLING).process(ProcessWindowFunction),
            "function is a ProcessWindowFunction, which is for windows after key_by",
        ),
        (
            lambda: keyed().window(TUMBLING).process(ProcessAllWindowFunction()),
            "process: function is a ProcessAllWindowFunction, which is for window_all",
        ),
        (
            lambda: keyed().window(TUMBLING).reduce(max, process_function=ProcessAllWindowFunction),
            "reduce: process_function is a ProcessAllWindowFunction, which is for window_all",
        ),
        (lambda: keyed().window(TUMBLING).reduce(max, process_function=1), "process_function must be a function"),
        (
            lambda: keyed().window(TUMBLING).reduce(max, identity, process_function=identity),
            "reduce: window_function and process_function both say what comes out of a window",
        ),
        (
            lambda: records().window_all(TUMBLING).reduce(max, parallelism=2),
            "window_all: a window over all records demands parallelism=1, the call asks for parallelism=2",
        ),
        (lambda: keyed().window_all(TUMBLING), "key_by: KeyedStream(source) is partitioned by key already"),
        (lambda: keyed().count_window(0), "count_window: size=0 is no number of records; give at least 1"),
        (lambda: keyed().count_window(3, 0), "count_window: slide=0 is no number of records"),
        (lambda: keyed().count_window("3"), "count_window: size must be a whole number"),
    ],
)
def test_wrong_use_is_refused_at_the_call(call: Callable[[], Any], message: str) -> None:
    """A call that could never work is refused where it is written, and the error says how to correct it."""
    with pytest.raises(JobGraphError) as caught:
        call()

    assert message in str(caught.value)


def test_early_results_are_not_refused() -> None:
    """Triggers by the clock may fire event-time windows early, and every built-in one but Never merges."""
    for trigger in (ContinuousProcessingTimeTrigger.of(5), ContinuousEventTimeTrigger.of(5), CountTrigger.of(1)):
        assert keyed().window(SESSIONS).trigger(trigger)._trigger is trigger
    assert keyed().window(BY_CLOCK).trigger(ContinuousEventTimeTrigger.of(5))
