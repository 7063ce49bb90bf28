"""Functions with operator state: map, process, source and sink functions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.errors import ConfigurationError, JobChangedError, JobGraphError, UserFunctionError
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.basic import (
    CheckpointedFunction,
    CollectedResults,
    CollectSink,
    FunctionSink,
    FunctionStateContext,
    FunctionStateOperator,
    KeyedProcessFunction,
    KeyedProcessOperator,
    ListCheckpointed,
    MapOperator,
    ProcessFunction,
    SinkFunction,
    SinkFunctionContext,
)
from operators.sources import FunctionSource, SequenceSource, SourceFunction, SourceFunctionContext
from operators.time import WatermarkStrategy
from tests.operators.harness import Checkpoint, Harness

US = 1_000


class Numbered(CheckpointedFunction):
    """A map function that numbers the records of its subtask."""

    def __init__(self) -> None:
        self.count = 0

    def initialize_state(self, ctx: FunctionStateContext) -> None:
        self.state = ctx.list_state("count")
        self.count = sum(self.state.get())

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.state.update([self.count])

    def __call__(self, value: Any) -> tuple[Any, int]:
        self.count += 1
        return value, self.count


class Held(ProcessFunction, ListCheckpointed):
    """A process function that holds two records back, and its keyed form."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        self.held.append(value)
        out, self.held = (self.held, []) if len(self.held) == 2 else ([], self.held)
        return out

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return self.held

    def restore_state(self, elements: list[Any]) -> None:
        self.held = elements


class KeyedTotal(KeyedProcessFunction, ListCheckpointed):
    """Counts all keys of the subtask together."""

    def __init__(self) -> None:
        self.total = 0

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        self.total += 1
        return [(value, self.total)]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [self.total]

    def restore_state(self, elements: list[Any]) -> None:
        self.total = sum(elements)


class Counting(SourceFunction, CheckpointedFunction):
    """Numbers of the subtask's residue class; the numbers still to come are a list."""

    stop = 40

    def initialize_state(self, ctx: FunctionStateContext) -> None:
        self.state = ctx.list_state("to come")
        self.to_come = self.state.get() if ctx.is_restored else list(range(ctx.subtask, self.stop, ctx.parallelism))

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.state.update(self.to_come)

    def read(self, max_records: int, ctx: SourceFunctionContext) -> list[Any] | None:
        out, self.to_come = self.to_come[:max_records], self.to_come[max_records:]
        return out or None


WRITTEN: list[list[int]] = []


class Buffering(SinkFunction, CheckpointedFunction):
    """Writes three records at a time. (Flink's example of a function with operator state.)"""

    def __init__(self) -> None:
        self.buffered: list[int] = []

    def initialize_state(self, ctx: FunctionStateContext) -> None:
        self.state = ctx.list_state("buffered")
        self.buffered = self.state.get()

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.state.update(self.buffered)

    def invoke(self, value: int, ctx: SinkFunctionContext) -> None:
        self.buffered.append(value)
        if len(self.buffered) == 3:
            self.finish(ctx)

    def finish(self, ctx: SinkFunctionContext) -> None:
        WRITTEN.append(self.buffered)
        self.buffered = []


def _run(job: Job, *kills: tuple[str, int], records: int = 3) -> ExecutionResult:
    config = RunConfig(mode="aligned", checkpoint_interval=CheckpointInterval(records=records), batch_size=1)
    execution = Execution(job.plan(), config)
    for target, at_ns in kills:
        execution.kill(target, at_ns)
    result = execution.run()
    assert result.state == "finished", result.error
    return result


def test_a_map_function_goes_back_with_its_checkpoint() -> None:
    """Its count is that of an undisturbed run."""
    results = CollectedResults()
    job = Job("numbered", parallelism=1)
    job.source(SequenceSource(0, 20)).rebalance().map(Numbered(), name="numbered").sink(CollectSink(results))
    result = _run(job, ("numbered[0]", 14 * US))

    assert result.attempts == 2
    assert results.records == [(number, number + 1) for number in range(20)]


def test_a_process_function_keeps_what_it_holds_back() -> None:
    """A list that it returns and gets back."""
    results = CollectedResults()
    job = Job("held", parallelism=1)
    job.source(SequenceSource(0, 20)).rebalance().process(Held, name="held").sink(CollectSink(results))
    result = _run(job, ("held[0]", 14 * US))

    assert result.attempts == 2
    assert results.records == list(range(20))


def test_a_keyed_process_function_has_operator_state_beside_that_of_its_keys() -> None:
    """Both go back together."""
    results = CollectedResults()
    job = Job("keyed", parallelism=1)
    keyed = job.source(SequenceSource(0, 20)).key_by(lambda number: number % 3)
    keyed.process(KeyedTotal(), name="total").sink(CollectSink(results))
    result = _run(job, ("total[0]", 14 * US))

    assert result.attempts == 2
    assert results.records == [(number, number + 1) for number in range(20)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_source_function_goes_on_at_its_state(parallelism: int) -> None:
    """Each record comes once, in every number of subtasks."""
    results = CollectedResults()
    job = Job("counting", parallelism=parallelism)
    job.source(FunctionSource(Counting), name="counting").rebalance().map(str, name="text").sink(CollectSink(results))
    result = _run(job, ("text[0]", 11 * US), records=5)

    assert result.attempts == 2
    assert Counter(results.records) == Counter(str(number) for number in range(40))


def test_a_sink_function_may_buffer() -> None:
    """What it holds back is in the checkpoint: nothing is lost, and what was written since comes again."""
    WRITTEN.clear()
    job = Job("buffering", parallelism=1)
    job.source(SequenceSource(0, 20)).rebalance().sink(FunctionSink(Buffering()), name="buffering")
    result = _run(job, ("buffering[0]", 14 * US))

    assert result.attempts == 2
    assert {number for batch in WRITTEN for number in batch} == set(range(20))
    assert all(len(batch) == 3 for batch in WRITTEN[:-1])


def test_a_source_function_without_state_is_refused() -> None:
    """A restart would read everything again."""
    with pytest.raises(ConfigurationError, match="derive it from CheckpointedFunction"):
        FunctionSource(SourceFunction())


def _subtask(function: Any, subtask: int = 0, parallelism: int = 1, restored: Checkpoint | None = None) -> Harness:
    made = FunctionStateOperator(MapOperator, function)
    return Harness(made, subtask=subtask, parallelism=parallelism, restored=restored)


class Lists(CheckpointedFunction):
    """One state of each kind."""

    def initialize_state(self, ctx: FunctionStateContext) -> None:
        self.split, self.union = ctx.list_state("split"), ctx.union_list_state("union")
        self.map = ctx.broadcast_state("map")
        self.restored = (self.split.get(), self.union.get(), self.map.get("k"))
        if not ctx.is_restored:
            self.split.update([f"{ctx.subtask}a", f"{ctx.subtask}b"])
            self.union.update([ctx.subtask])
            self.map.put("k", "v")

    def __call__(self, value: Any) -> Any:
        return self.restored


def test_lists_are_divided_unions_and_broadcast_states_come_whole() -> None:
    """Two subtasks become three."""
    checkpoint = Checkpoint(1)
    for subtask in range(2):
        _subtask(Lists(), subtask, 2).snapshot(1, checkpoint)

    seen = []
    for subtask in range(3):
        one = _subtask(Lists(), subtask, 3, checkpoint)
        one.process([0])
        seen += one.take_values()
    assert [element for split, _, _ in seen for element in split] == ["0a", "0b", "1a", "1b"]
    assert [union for _, union, _ in seen] == [[0, 1]] * 3
    assert [value for _, _, value in seen] == ["v"] * 3


class Heard(KeyedProcessFunction, ListCheckpointed):
    """Notes each call, and has a timer in each time."""

    is_union = True

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def restore_state(self, elements: list[Any]) -> None:
        self.heard = [("restored", elements)]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [len(self.heard)]

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.register_event_time_timer(5)
        ctx.register_processing_time_timer(ctx.processing_time_ms() + 7)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> None:
        self.heard.append((ctx.time_domain, ctx.current_key))

    def close(self) -> None:
        self.heard.append("closed")


def _heard(subtask: int, parallelism: int, restored: Checkpoint | None = None) -> tuple[Harness, Any]:
    made = FunctionStateOperator(KeyedProcessOperator, Heard)
    one = Harness(made, subtask=subtask, parallelism=parallelism, restored=restored, key=lambda _: "d")
    return one, made.inner.function  # type: ignore[attr-defined]


def test_everything_reaches_a_function_with_state() -> None:
    """Times of both kinds, idleness and the end. State is restored only if the job starts from a checkpoint: of a
    union each subtask gets the elements of all, also one that is new."""
    one, function = _heard(0, 1)
    one.process([1])
    one.watermark(5)
    one.advance_ms(7)
    one.operator.process_watermark_status(True)
    assert function.heard == [("event", "d"), ("processing", "d")]
    assert ("idle", True) in one.take()
    checkpoint = Checkpoint(1)
    one.snapshot(1, checkpoint)
    one.close()
    assert function.heard[2:] == ["closed"]
    assert [_heard(subtask, 2, checkpoint)[1].heard for subtask in range(2)] == [[("restored", [2])]] * 2


class Untrue(SourceFunction, ListCheckpointed):
    """A source function that gives back what it was made with."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def read(self, max_records: int, ctx: SourceFunctionContext) -> Any:
        return self.given


@pytest.mark.parametrize("given", [[1, 2, 3], (1,), "a"])
def test_a_source_function_gives_what_it_was_asked_for(given: Any) -> None:
    """A list with no more records than that: others would be in no checkpoint where they belong."""
    task = Harness(FunctionSource(Untrue(given)).operator_factory(None)())
    with pytest.raises(UserFunctionError, match=r"read\(\) must return a list of up to 2 records, or None; got"):
        task.operator.emit_next(2)  # type: ignore[attr-defined]


def test_a_source_function_without_records_is_asked_again_later() -> None:
    """And goes on with the least event time of those that it takes over from."""
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda number: number)
    checkpoint = Checkpoint(1)
    for subtask, given in enumerate(([70], [30])):
        task = Harness(FunctionSource(Untrue(given)).operator_factory(strategy)(), subtask=subtask, parallelism=2)
        task.operator.emit_next(1)  # type: ignore[attr-defined]
        task.advance_ms(200)
        task.snapshot(1, checkpoint)
    one = Harness(FunctionSource(Untrue([])).operator_factory(strategy)(), restored=checkpoint)
    operator: Any = one.operator
    assert operator.emit_next(1) == 0
    assert operator.available_at_ns(one.context.now_ns) > one.context.now_ns
    assert one.take() == [("watermark", 29)]


def test_each_subtask_works_on_its_own_function() -> None:
    """The object in the job file stays as it was."""
    function = Numbered()
    one = _subtask(function)
    one.process(["a", "b"])
    assert function.count == 0
    assert one.take_values() == [("a", 1), ("b", 2)]


def test_the_state_of_a_function_of_another_class_is_refused() -> None:
    """The message gives both ways out: take it over by name, or drop it under another uid."""

    class Renamed(Numbered):
        pass

    class TakesOver(Numbered):
        state_id = "Numbered"

    checkpoint = Checkpoint(1)
    one = _subtask(Numbered())
    one.process(["a"])
    one.snapshot(1, checkpoint)

    with pytest.raises(JobChangedError, match="holds state of function Numbered, and the function is Renamed now"):
        _subtask(Renamed(), restored=checkpoint)
    again = _subtask(TakesOver(), restored=checkpoint)
    again.process(["b"])
    assert again.take_values() == [("b", 2)]


def test_a_failing_snapshot_names_the_function() -> None:
    """The job fails with the operator's name, and no checkpoint is taken."""

    class Broken(Held):
        def snapshot_state(self, checkpoint_id: int) -> list[Any]:
            raise ZeroDivisionError("one over nothing")

    job = Job("broken", parallelism=1)
    job.source(SequenceSource(0, 20)).rebalance().process(Broken, name="broken").sink(CollectSink([]))
    config = RunConfig(
        mode="aligned", checkpoint_interval=CheckpointInterval(records=3), restart=NoRestart()
    )
    result = Execution(job.plan(), config).run()
    assert result.state == "failed"
    assert "broken" in str(result.error)
    assert "snapshot_state of function" in str(result.error)


class Returns(ListCheckpointed):
    """A map function whose snapshot is what it was made with."""

    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def __call__(self, value: Any) -> Any:
        return value

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return self.stored


class ReturnsToo(Returns, CheckpointedFunction):  # type: ignore[misc]
    """Derived from both bases."""


class Forgets(Numbered):
    """Returns what it should put into its state."""

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return [self.count]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (Returns(None), "it must return a list of elements, and returned None"),
        (Returns("ab"), "it must return a list of elements, and returned 'ab'"),
        (Returns([None]), "an element that is None"),
        (Forgets(), "that of a CheckpointedFunction updates its states, and returned"),
    ],
)
def test_a_snapshot_that_would_lose_state_is_refused(function: Any, told: str) -> None:
    """The message names the operator and says what to return; no record is to blame."""
    one = _subtask(function)
    with pytest.raises((UserFunctionError, ValueError), match=told) as error:
        one.snapshot(1, Checkpoint(1))
    assert "record" not in str(error.value)


def test_a_function_whose_state_has_no_name_or_two_owners_is_refused() -> None:
    """Before the job begins: a checkpoint with such a name could not be restored."""
    named, numbers = Numbered(), Job("refused").source(SequenceSource(0, 3))
    named.state_id = 5  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="state_id of function Numbered is 5; it must be a text"):
        numbers.map(named)
    with pytest.raises(ConfigurationError, match="is a CheckpointedFunction and a ListCheckpointed"):
        numbers.map(ReturnsToo([1]))


class NotDerived:
    """Has the methods, and neither base."""

    def __call__(self, *values: Any) -> Any:
        return values[0]

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        return [value]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [1]


def test_state_that_no_one_would_keep_is_refused() -> None:
    """Methods without a base, and functions of operators that keep no operator state, such as a reduction."""
    numbers = Job("refused").source(SequenceSource(0, 3))
    for use in (numbers.map, numbers.flat_map, numbers.filter, numbers.process):
        with pytest.raises(ConfigurationError, match="derive its class from CheckpointedFunction or ListCheckpointed"):
            use(NotDerived())
    keyed = numbers.key_by(lambda number: number)
    for use in (numbers.key_by, numbers.partition_custom, numbers.map_columns, keyed.reduce):
        with pytest.raises(JobGraphError, match=r"snapshot_state\(\) and restore_state\(\) would never be called"):
            use(Numbered())
