"""Loops at run time: how they end, which elements do not go round, what blocks them, what their checkpoints hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from engine.checkpoint.barriers import BarrierHandler, InputCapture, SingleCheckpointHandler
from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, JobFailedError
from engine.elements.events import StopMode
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.graph.loops import find_loops
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    Receive,
    RecordsCaptured,
    Send,
    SnapshotTaken,
    TaskState,
)
from engine.protocols.barriers import AlignedBarriers
from engine.runtime.channels import CheckpointedInputGate
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.job import JobManager
from engine.runtime.kernel import START_NS
from engine.runtime.storage import RestoredJob
from engine.runtime.tasks.feedback_loops import UNBOUNDED, FeedbackChannel, LoopTermination
from operators.basic import CollectedResults, KeyedProcessContext, KeyedProcessFunction
from operators.sources import CollectionSource, Pause
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.cases import crossed
from tests.runtime.support import MS, US, Trace, every
from tests.scenarios.random.loop_jobs import SHAPES, Kill, LoopRun, loop_job

MODES = ("aligned", "unaligned", "aligned-timeout", "at-least-once", "none")
SLOW = CostModel(record_ns=2 * US, link_latency_ns=700)


def settings(**changed: Any) -> RunConfig:
    """Small batches, slow records and links, many checkpoints."""
    chosen: dict[str, Any] = {"batch_size": 2, "cost": SLOW, "checkpoint_interval": every(ns=20 * US), **changed}
    return RunConfig(**chosen)


def feedback_channels(made: LoopRun) -> set[int]:
    """The channels of a job that lead back."""
    plan = made.job.plan()
    return {channel.index for channel in plan.channels if plan.edges[channel.edge].is_feedback}


def traced(made: LoopRun, config: RunConfig, kills: Iterable[Kill] = ()) -> Trace:
    """The trace of a run that counted every trip once."""
    trace = Trace()
    made.run(config, kills, [trace])
    assert made.output == made.expected
    return trace


# --- the end ----------------------------------------------------------------------------------------------------------


def inside(made: LoopRun) -> set[int]:
    return {channel for loop in find_loops(made.job.plan()) for channel in loop.channels}


def ends(trace: Trace) -> list[int]:
    """When the heads of the loop have ended their input."""
    heads = ("loop", "inner")
    return [one.time_ns for one in trace.of(TaskState) if one.state == "end_of_data" and one.task.startswith(heads)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_loop_is_not_over_before_its_last_record(shape: str, mode: str) -> None:
    """The heads end their input when the last token on its way between them has been taken."""
    made = loop_job(shape)
    trace = traced(made, settings(mode=mode))
    taken = [one.time_ns for one in trace.of(Receive) if one.channel in inside(made) and one.kind == "records"]

    assert max(taken) <= min(ends(trace))


@pytest.mark.parametrize("shape", ["chained", "keyed", "long"])
def test_the_end_of_a_loop_takes_no_time_of_its_own(shape: str) -> None:
    """The input ends at the instant in which the last element inside the loop is taken: no timeout, no second look."""
    made = loop_job(shape)
    trace = traced(made, settings(mode="none"))
    closing = ("EndOfData", "EndOfPartition")
    taken = [one for one in trace.of(Receive) if one.channel in inside(made) and one.kind not in closing]

    assert ends(trace) == [taken[-1].time_ns] * 2


def test_a_loop_without_input_ends() -> None:
    """No record ever goes round."""
    assert traced(loop_job(tokens=0), settings()).of(RecordsCaptured) == []


DUE_MS = 13


class AgainAtTheEnd(KeyedProcessFunction):
    """Sends a record round once, when event time is over, or at 13 ms of processing time."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.kept = ctx.value_state("kept", 0)

    def process_element(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any]:
        number, left = value
        if left == "event time":
            self.kept.update(number)
            ctx.register_event_time_timer(MAX_TIMESTAMP_MS)
        elif left == "processing time":
            self.kept.update(number)
            ctx.register_processing_time_timer(START_NS // MS + DUE_MS)
        return [(number, left)]

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any]:
        ctx.side_output("again", (self.kept.get(), "came back"))
        return ()


def timed_job(domain: str, results: CollectedResults) -> Job:
    """Three records that wait inside a loop; the input ends a millisecond after them."""
    job = Job("timed", parallelism=2)
    records = [(number, domain) for number in range(3)]
    loop = job.source(CollectionSource([*records, Pause(1)]), parallelism=1).iterate(name="loop")
    kept = loop.key_by(lambda value: value[0]).process(AgainAtTheEnd, name="kept")
    loop.close_with(kept.side_output("again"))
    kept.collect(results, name="out")
    return job


@pytest.mark.parametrize("latency_ns", [0, 5 * US])
def test_what_the_last_watermark_sets_free_goes_round(latency_ns: int) -> None:
    """The loop ends only after the last watermark has fired its timers and their records have come round."""
    results = CollectedResults()
    config = RunConfig(cost=CostModel(link_latency_ns=latency_ns))

    Execution(timed_job("event time", results).plan(), config).run().raise_on_failure()

    assert sorted(results.records) == sorted([(n, what) for n in range(3) for what in ("event time", "came back")])


@pytest.mark.parametrize("latency_ms", [0, 5])
def test_timers_of_processing_time_do_not_hold_a_loop_open(latency_ms: int) -> None:
    """At the end of data they no longer fire: with 5 ms per link the loop is over at 11 ms, they were due at 13."""
    results = CollectedResults()
    config = RunConfig(cost=CostModel(source_record_ns=0, link_latency_ns=latency_ms * MS))

    Execution(timed_job("processing time", results).plan(), config).run().raise_on_failure()

    assert sorted(results.records) == [(n, "processing time") for n in range(3)]


class HoldsBack(Operator):
    """Emits all records when it finishes."""

    def open(self) -> None:
        self.held: list[Any] = []

    def process_batch(self, batch: Batch) -> None:
        self.held += batch.values

    def finish(self) -> None:
        self.output.emit(Batch(self.held))


def test_what_is_fed_back_behind_the_end_is_an_error() -> None:
    """No task could take it, and no restart would help; the error names the operator that emitted it."""
    job = Job("held")
    loop = job.source(CollectionSource([1, 2, 3])).iterate(name="loop")
    held = loop.via(HoldsBack, name="held")
    loop.close_with(held)
    held.collect([])
    config = RunConfig(restart=FixedDelayRestart(5, 0))
    result = Execution(job.plan(), config).run()

    assert isinstance(result.error, JobFailedError)
    assert result.attempts == 1
    assert "operator 'held' feeds 3 records back into an iteration that is over" in str(result.error)


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "at-least-once"])
def test_a_loop_outlives_its_sources_and_goes_on_taking_checkpoints(mode: str) -> None:
    """The coordinator triggers its head once only back edges lead to it."""
    made = loop_job(tokens=12)
    trace = traced(made, settings(mode=mode))
    states = trace.of(TaskState)
    finished = max(one.time_ns for one in states if one.state == "finished" and one.task.startswith("prepare"))
    during = [one.checkpoint_id for one in trace.of(CheckpointCompleted) if finished < one.time_ns < min(ends(trace))]
    tasks = {one.task for one in trace.of(SnapshotTaken) if one.checkpoint_id == during[-1]}

    assert tasks == {"loop[0]", "loop[1]", "trip[0]", "trip[1]", "out[0]"}


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "aligned-timeout"])
def test_a_loop_goes_on_without_its_sources_after_a_restore(mode: str) -> None:
    """The sources had finished and are not run again; the tokens on their way round are processed."""
    made = loop_job(tokens=12)
    trace = traced(made, settings(mode=mode), [Kill("trip[0]", 4, 0)])
    second = [one for one in trace.of(TaskState) if one.attempt == 2]
    emitted = [one for one in trace.of(Send) if one.attempt == 2 and one.kind == "records"]
    before = {one.index for one in made.job.plan().channels if one.sender_vertex <= 1}

    assert (second[1].task, second[1].state) == ("prepare[0]", "finished")
    assert emitted
    assert not before.intersection(one.channel for one in emitted)


def test_the_termination_machine_ends_once() -> None:
    """After the last input has ended and the loop is silent; not before, and not again."""
    machine = LoopTermination(2)
    machine.on_input_ended()
    assert not machine.awaits_silence
    machine.on_input_ended()
    assert machine.awaits_silence
    machine.on_silence()

    assert machine.is_over
    assert not machine.awaits_silence
    assert machine.fingerprint() == (0, True)
    with pytest.raises(AssertionError):
        machine.on_silence()
    with pytest.raises(AssertionError):
        machine.on_input_ended()


# --- time -------------------------------------------------------------------------------------------------------------


def test_watermarks_do_not_go_round() -> None:
    """The event time inside a loop is that of its input: windows in it and after it close."""
    job, results, trace = Job("windows", parallelism=2), CollectedResults(), Trace()
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda value: value[0])
    records = CollectionSource([(stamp, 1) for stamp in range(0, 100, 5)])
    source = job.source(records, watermarks=strategy, parallelism=1)
    loop = source.rebalance().iterate(name="loop")
    trip = loop.map(lambda value: (value[0], value[1] + 1), name="trip")
    loop.close_with(trip.filter(lambda value: value[1] < 4))
    windows = trip.key_by(lambda value: value[0] // 20).window(TumblingEventTimeWindows(20))
    windows.reduce(lambda one, other: (one[0], one[1] + other[1])).collect(results)
    execution = Execution(job.plan(), RunConfig(batch_size=3), instruments=[trace])
    execution.run().raise_on_failure()
    plan = job.plan()
    back = {one.index for one in plan.channels if plan.edges[one.edge].is_feedback}

    assert {one.kind for one in trace.of(Send) if one.channel in back} == {"records", "EndOfData", "EndOfPartition"} | {
        "CheckpointBarrier"
    }
    assert max(one.detail or 0 for one in trace.of(Send) if one.kind == "Watermark") == MAX_TIMESTAMP_MS
    assert sorted(key for key, *_ in results.records) == [0, 1, 2, 3, 4]


# --- what holds a loop back -------------------------------------------------------------------------------------------


def most_waiting(made: LoopRun, config: RunConfig) -> int:
    """The most records that ever waited on one feedback channel."""
    back = feedback_channels(made)
    return max(one.queued for one in traced(made, config).of(Send) if one.channel in back)


@pytest.mark.parametrize("shape", ["keyed", "chained", "long"])
def test_a_full_loop_takes_nothing_new(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head reads only back edges while as many records wait there as a channel holds."""
    made, free = (loop_job(shape, tokens=120, feedback="by default") for _ in range(2))
    config = settings(channel_capacity=4)

    assert most_waiting(made, config) <= 16
    monkeypatch.setattr(CheckpointedInputGate, "_admitted", lambda gate, channel: channel)
    assert most_waiting(free, config) > 30


@crossed(quick=2, shape=sorted(SHAPES), mode=MODES)
def test_a_loop_does_not_lock_itself(shape: str, mode: str) -> None:
    """With room for one record on every other channel, and all tasks of the loop full at once."""
    traced(loop_job(shape, tokens=60), settings(mode=mode, channel_capacity=1, batch_size=8))


def test_debloating_leaves_feedback_alone() -> None:
    """It reduces the credit of channels that lead into the head; the credit of a feedback channel stays unlimited."""
    made = loop_job(tokens=120)
    execution = made.prepared(settings(debloat_target_ns=10 * US))
    made.checked(execution)
    credit = {
        isinstance(channel, FeedbackChannel): channel.input_credit
        for task in execution.manager.tasks.values()
        for channel in task.inputs
        if task.name.startswith("loop")
    }

    assert made.output == made.expected
    assert credit[True] == UNBOUNDED
    assert credit[False] < 4


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_without_its_rule_an_aligned_checkpoint_waits_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head would wait for the barrier that it has to send itself; with the rule all checkpoints complete."""

    def plain(
        protocol: AlignedBarriers, channels: int, capture: InputCapture, back_edges: Collection[int] = ()
    ) -> BarrierHandler:
        return SingleCheckpointHandler(channels)

    config = settings(checkpoint_timeout_ns=500 * US, tolerable_failures=100, final_checkpoint_attempts=2)
    made, locked = loop_job(), loop_job()

    reasons = {one.reason for one in traced(made, config).of(CheckpointAborted)}
    # The job may end in between, but no checkpoint has waited until its timeout.
    assert reasons <= {"CHECKPOINT_DECLINED_TASK_CLOSING", "CHECKPOINT_COORDINATOR_SUSPEND"}
    monkeypatch.setattr(AlignedBarriers, "barrier_handler", plain)
    result = locked.ended(locked.prepared(config))
    assert result.state == "failed"
    assert result.checkpoints.completed == 0


@pytest.mark.parametrize("mode", ["aligned", "at-least-once"])
def test_a_checkpoint_holds_what_comes_back(mode: str) -> None:
    """Records on feedback edges are stored under the head in every mode, in checkpoints and savepoints."""
    made, files, trace = loop_job(), MemoryFileSystem(), Trace()
    storage = CheckpointStorage(files, "/checkpoints", "loop")
    execution = made.prepared(settings(mode=mode, retained=100), instruments=[trace], storage=storage)
    made.checked(execution)
    back = feedback_channels(made)
    captured = trace.of(RecordsCaptured)
    checkpoint_id = captured[0].checkpoint_id
    metadata = storage.location(checkpoint_id).verify()
    holders = {
        operator.uid
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        if subtask.input_channels or subtask.output_channels
    }

    assert {(one.channel in back, one.side) for one in captured} == {(True, "input")}
    assert holders == {"loop"}


def test_what_was_logged_comes_before_anything_new() -> None:
    """After a restore the head first takes the records of its back edges, and no marker goes round."""
    made = loop_job(feedback="by default")
    trace = traced(made, settings(), [Kill("trip[0]", 2, 0)])
    back = feedback_channels(made)
    plan = made.job.plan()
    attempt = next(one for one in trace.of(AttemptStarted) if one.restored_checkpoint is not None)
    logged = Counter[int]()
    for one in trace.of(RecordsCaptured):
        if one.checkpoint_id == attempt.restored_checkpoint:
            logged[one.channel] += one.records
    heads = {one.index for one in plan.channels if plan.vertices[one.receiver_vertex].name == "loop"}
    first: list[tuple[int, int]] = [
        (one.channel, one.records)
        for one in trace.of(Receive)
        if one.attempt == attempt.attempt and one.channel in heads and one.kind == "records"
    ]
    taken = Counter[int]()
    while first and taken != logged:
        channel, records = first.pop(0)
        assert channel in back
        taken[channel] += records
    markers = {one.channel in back for one in trace.of(Send) if one.kind == "EndOfChannelState"}

    assert logged
    assert taken == logged
    assert markers == {False}


def test_checkpoints_of_a_loop_cannot_overlap() -> None:
    """The setting is refused before the job runs, in every mode; without an iteration it is allowed."""
    config = RunConfig(mode="at-least-once", max_concurrent=2)
    straight = Job("straight")
    straight.source(CollectionSource([1])).collect([])

    with pytest.raises(ConfigurationError, match="max_concurrent is 2, but job 'loop' has an iteration"):
        Execution(loop_job().job.plan(), config)
    assert Execution(straight.plan(), config).run().state == "finished"


@pytest.mark.parametrize("stop", list(StopMode))
def test_a_loop_that_stops_does_not_end(stop: StopMode) -> None:
    """Records that its head handles after the snapshot would not be in the savepoint, drained or not."""
    for seed in range(20):
        job, trace = Job("stopped"), Trace()
        loop = job.source(CollectionSource([1, 2, 3, Pause(50), 4]), name="tokens").iterate(name="loop")
        trip = loop.map(lambda value: value - 1, name="trip", chain=False)
        loop.close_with(trip.filter(lambda value: value > 0, chain=False))
        trip.collect([], name="out")
        config = RunConfig(seed=str(seed), cost=CostModel(source_record_ns=0), checkpoint_interval=None)
        execution = Execution(job.plan(), config, instruments=[trace], file_system=MemoryFileSystem())
        execution.savepoint(20 * MS, "/saved", stop=stop)

        assert execution.run().state == "stopped"
        assert ends(trace) == []


# --- failover ---------------------------------------------------------------------------------------------------------


def test_a_region_holds_its_own_part_of_a_loop() -> None:
    """Where subtasks never exchange records, each goes round on its own: one dies and is restored, the other ends."""
    job, results, trace = Job("slices", parallelism=2), CollectedResults(), Trace()
    loop = job.source(CollectionSource([(n, 6) for n in range(20)], splits=2), name="tokens").iterate(name="loop")
    trip = loop.map(lambda token: (token[0], token[1] - 1), name="trip", chain=False)
    loop.close_with(trip.filter(lambda token: token[1] > 0))
    trip.collect(results, name="out")
    execution = Execution(job.plan(), settings(failover="region"), instruments=[trace])
    execution.kill("trip[0]", 65 * US)
    execution.run().raise_on_failure()
    restarted = {one.task for one in trace.of(TaskState) if one.attempt == 2}

    assert Counter(results.records) == Counter((n, left) for n in range(20) for left in range(6))
    assert restarted == {"tokens[0]", "loop[0]", "trip[0]", "filter[0]", "out[0]"}


def test_the_same_seed_gives_the_same_trace() -> None:
    """Also with faults; another seed gives another trace."""
    traces = []
    for seed in ("1", "1", "2"):
        traces.append(traced(loop_job(), settings(seed=seed), [Kill("loop[0]", 2, 3 * US)]).events[1:])

    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def test_a_head_that_had_finished_says_that_the_loop_was_over() -> None:
    """An unaligned barrier may overtake the end of data on its way from one head to the next. After a restore the first
    one does not run, so it takes no end of data from outside; the other one ends nevertheless."""
    made = loop_job("nested")
    execution = made.prepared(RunConfig())
    plan, manager = execution.plan, execution.manager
    before = frozenset(vertex.index for vertex in plan.vertices if vertex.name in ("tokens 0", "prepare", "loop"))
    # The coordinator need not know the checkpoint that it is restored from.
    restored = RestoredJob(None, START_NS, {}, finished_vertices=before)  # type: ignore[arg-type]
    execution.kernel.schedule(START_NS, "strike", _Deployment(manager, restored))
    manager.start = lambda *_: manager.take_over(None)  # type: ignore[method-assign]

    assert made.checked(execution).state == "finished"
    assert {task.name: task.life.state for task in manager.tasks.values()}["inner[0]"] == "finished"


class _Deployment:
    """Deploys a job from a checkpoint that was never taken."""

    name = "deployment"

    def __init__(self, manager: JobManager, restored: RestoredJob) -> None:
        self._manager = manager
        self._restored = restored

    def strike(self, _payload: object) -> None:
        self._manager.deploy_all(self._restored, ())
