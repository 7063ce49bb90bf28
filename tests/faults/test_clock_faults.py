"""Clocks that are off or jump, slow tasks, idle sources, late watermarks: their effects on a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from engine.observe.trace_events import Receive, Send, TimerFired
from engine.runtime.config import CheckpointInterval, CostModel
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import START_NS, ChoiceRecorder
from operators.basic import CollectedResults, KeyedProcessFunction
from operators.sources import CollectionSource, Pause, SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.changelog import ChangelogStateBackend
from state_backends.heap import HeapStateBackend
from tests.faults.disturbed import EXPECTED, MODES, VIRTUAL_BOUND_NS, Disturbance, config, counting, disturbed

US, MS = 1_000, 1_000_000
KINDS = ("slow", "idle", "clock-jump", "skew", "watermark-stall")
NUMBERS, PACE_MS, DELAY_MS = 45, 2, 5


class Alarm(KeyedProcessFunction):
    """A processing-time timer for each number; records the clock when the timer was set and when it fired."""

    def process_element(self, value: int, ctx: Any) -> list[Any]:
        ctx.register_processing_time_timer(ctx.processing_time_ms() + DELAY_MS)
        return [("set", value, ctx.processing_time_ms() - START_NS // MS)]

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        return [("fired", timestamp_ms - START_NS // MS, ctx.processing_time_ms() - START_NS // MS)]


def alarms(*faults: str, seed: str = "0", **settings: Any) -> tuple[list[Any], ExecutionResult, list[Any]]:
    """One number per ms; returns the collected records, the result, and the trace."""
    results, trace = CollectedResults(transactional=False), []  # type: ignore[var-annotated]
    job = Job("alarms", max_parallelism=4)
    numbers = job.source(SequenceSource(0, NUMBERS), name="numbers")
    paced = numbers.key_by(lambda number: 0).process(Alarm(), name="alarm")
    paced.collect(results, name="out")
    choices = ChoiceRecorder(seed)
    disturbance = Disturbance([parse_fault(one) for one in faults], FaultMix(), choices)
    execution = Execution(
        job.plan(),
        config(
            seed=seed,
            **{
                "batch_size": 1,
                "checkpoint_interval": CheckpointInterval(time_ns=9 * MS),
                "checkpoint_timeout_ns": 60 * MS,
                "cost": CostModel(source_record_ns=PACE_MS * MS),
                **settings,
            },
        ),
        choices=choices,
        interference=disturbance,
        instruments=[trace.append],
    )
    disturbance.install(execution)
    return results.records, execution.run().raise_on_failure(), trace


def of_kind(records: list[Any], kind: str) -> list[Any]:
    return [record[1:] for record in records if record[0] == kind]


def test_timers_fire_once_each_behind_their_delay() -> None:
    """Without faults: at the instant they were set for."""
    records, _, _ = alarms()

    fired = of_kind(records, "fired")
    assert len(fired) >= NUMBERS - 3
    assert all(due == shown for due, shown in fired)


@pytest.mark.parametrize("jump_ms", [51, -51])
def test_a_jump_neither_loses_nor_repeats_a_timer(jump_ms: int) -> None:
    """Timers set after the jump go by the new clock. The next timer, which waits already, fires when its time has
    passed, whatever the clock shows then; later ones are waited for by the new clock, as on Flink."""
    usual = [time for _, time in of_kind(alarms()[0], "set")]
    records, result, trace = alarms(f"clock-jump:alarm[0]@7ms~51ms{'=-1' if jump_ms < 0 else ''}")

    shown = [time for _, time in of_kind(records, "set")]
    fired = of_kind(records, "fired")
    assert shown == [time + jump_ms * (time >= 7) for time in usual]
    end = shown[-1] + PACE_MS
    assert Counter(due for due, _ in fired) == Counter(time + DELAY_MS for time in shown if time + DELAY_MS <= end)
    assert fired[0] == (2 + DELAY_MS, 7 + jump_ms)
    assert all(at >= due for due, at in fired[1:])
    times = [event.time_ns - result.started_ns for event in trace if isinstance(event, TimerFired)]
    assert times == sorted(times)


def test_a_skewed_clock_shows_in_what_tasks_read_and_nowhere_else() -> None:
    """Every time the task reads is off by as much; events happen at their usual times."""
    usual, result, _ = alarms()
    skewed, later, _ = alarms("skew:alarm[0]~300ms")

    assert [(value, at + 300) for value, at in of_kind(usual, "set")] == of_kind(skewed, "set")
    assert [(due + 300, at + 300) for due, at in of_kind(usual, "fired")] == of_kind(skewed, "fired")
    assert result.ended_ns == later.ended_ns


@pytest.mark.parametrize("text", ["skew:*~1s", "skew:*~1s=-1"])
def test_a_source_that_waits_for_its_input_waits_as_long_as_ever(text: str) -> None:
    """A duration is a difference of two readings of one clock."""
    ends = []
    for faults in ([], [parse_fault(text)]):
        results, choices = CollectedResults(), ChoiceRecorder()
        job = Job("paused")
        job.source(CollectionSource([1, Pause(5), 2]), name="numbers").collect(results)
        disturbance = Disturbance(faults, FaultMix(), choices)
        execution = Execution(job.plan(), config(checkpoint_interval=None), choices=choices, interference=disturbance)
        disturbance.install(execution)
        result = execution.run().raise_on_failure()
        ends.append(result.ended_ns)
        assert results.records == [1, 2]
        assert result.ended_ns - result.started_ns >= 5 * MS
    assert ends[0] == ends[1]


@pytest.mark.parametrize("text", ["skew:*~1s", "skew:*~1s=-1", "clock-jump:*@9ms~1s=-1"])
def test_background_work_goes_by_the_clock_of_its_task(text: str) -> None:
    """A state backend that materialises every so often does so under a wrong clock, neither always nor never."""
    backend = ChangelogStateBackend(HeapStateBackend(), materialization_interval_ms=4)
    records, result, _ = alarms(text, state_backend=backend)

    assert result.events_executed < 3_000
    assert len(of_kind(records, "set")) == NUMBERS


@pytest.mark.parametrize("mode", [*MODES, "at-least-once"])
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_faults_of_time_change_no_output(kind: str, mode: str) -> None:
    """Also together with a kill; repeated as exact faults the run is the same event by event."""
    struck: Counter[str] = Counter()
    for number in range(3):
        settings: dict[str, Any] = {"mode": mode, "seed": f"{kind}{number}", "kills": [("count[1]", 30 * US)]}
        run = disturbed(mix=FaultMix({kind: 300_000 if kind == "skew" else 60_000}, most=6), **settings)
        struck.update(fault.kind for fault in run.struck)

        assert run.result.state == "finished"
        assert run.took_ns <= VIRTUAL_BOUND_NS
        assert run.records == EXPECTED if mode != "at-least-once" else run.records >= EXPECTED
        assert disturbed(*run.struck, **settings).trace == run.trace
    assert struck[kind] or kind == "skew"


def test_a_slow_task_holds_its_senders_back() -> None:
    """One element in so long: its channel fills, its sender waits, and afterwards the run goes on as usual."""
    usual, slow = disturbed(), disturbed("slow:out[0]@1us~150us=15000")

    assert slow.records == EXPECTED
    assert slow.took_ns > usual.took_ns + 50 * US
    taken = [
        event.time_ns - slow.result.started_ns
        for event in slow.trace
        if isinstance(event, Receive) and event.kind == "records" and event.channel in _inputs_of("out[0]")
    ]
    during = {at for at in taken if US < at < 151 * US}
    assert 2 <= len(during) <= 11
    assert any(at > 151 * US for at in taken)


def _inputs_of(task: str) -> set[int]:
    plan = counting(CollectedResults()).plan()
    return {index for subtask in plan.subtasks if subtask.name == task for index in subtask.input_channels}


def test_an_idle_source_sends_nothing() -> None:
    """No record in the meantime, and all of them in the end."""
    run = disturbed("idle:near[0]@5us~80us")

    plan = counting(CollectedResults()).plan()
    channels = [one.index for one in plan.channels if one.sender_vertex == 0]
    sent = [
        event.time_ns - run.result.started_ns
        for event in run.trace
        if isinstance(event, Send) and event.channel in channels and event.kind == "records"
    ]
    assert run.records == EXPECTED
    # A batch that was begun before the fault is finished.
    assert not [at for at in sent if 10 * US < at < 85 * US]
    assert [at for at in sent if at >= 85 * US]


def windows(*faults: str) -> tuple[Counter[Any], list[int], ExecutionResult]:
    """Sums of tumbling windows, and when their results were sent."""
    results, trace = CollectedResults(), []  # type: ignore[var-annotated]
    job = Job("windows", max_parallelism=4)
    by_number = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_interval_ns(4 * US)
    numbers = job.source(SequenceSource(0, 40), name="numbers", watermarks=by_number)
    sums = numbers.key_by(lambda number: number % 2).window(TumblingEventTimeWindows.of(10))
    sums.reduce(lambda a, b: a + b, name="sums").collect(results, name="out", chain=False)
    choices = ChoiceRecorder()
    disturbance = Disturbance([parse_fault(one) for one in faults], FaultMix(), choices)
    execution = Execution(job.plan(), config(), choices=choices, interference=disturbance, instruments=[trace.append])
    disturbance.install(execution)
    result = execution.run().raise_on_failure()
    last = job.plan().channels[-1].index
    times = [
        event.time_ns - result.started_ns
        for event in trace
        if isinstance(event, Send) and event.channel == last and event.kind == "records"
    ]
    assert disturbance.struck == tuple(parse_fault(one) for one in faults)
    return Counter(results.records), times, result


def test_stalled_watermarks_fire_windows_late_and_change_nothing() -> None:
    """No window fires while the task gets none; the sums are the same."""
    usual, times, _ = windows()
    stalled, later, _ = windows("watermark-stall:sums[0]@2us~24us")

    assert stalled == usual
    assert any(2 * US < at < 24 * US for at in times)
    assert not any(4 * US < at < 26 * US for at in later)


def test_the_end_of_the_input_does_not_wait_for_stalled_watermarks() -> None:
    """The last windows fire before the end of data, however long the stall would have lasted."""
    usual, _, result = windows()
    stalled, _, later = windows("watermark-stall:sums[0]@2us~10s")

    assert stalled == usual
    assert later.ended_ns - result.ended_ns < 1_000 * MS
