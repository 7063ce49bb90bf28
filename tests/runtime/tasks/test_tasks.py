"""Tasks in virtual time: the cost of records, stragglers, timers that cut batches, and errors of users' functions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError, UserFunctionError
from engine.graph.job import Job
from engine.observe.trace_events import Receive, TaskState, TimerFired
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults, KeyedProcessFunction
from operators.sources import CollectionSource, Pause, SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from tests.runtime.support import MS, US, RecordingSink, Trace, every, execution, run

NOTHING_COSTS = CostModel(source_record_ns=0)


def two_tasks(sink: Any, records: int = 100) -> Job:
    """A source and a sink that are not chained."""
    job = Job("two").source(SequenceSource(0, records), name="numbers")
    return job.sink(sink, name="out", chain=False)


def received(trace: Trace) -> list[tuple[int, int]]:
    """``(ns since the start, records)`` of each batch received."""
    return [(one.time_ns - START_NS, one.records) for one in trace.of(Receive) if one.records]


def test_source_records_cost_a_microsecond() -> None:
    """By default n records are emitted by n µs, a batch when all of it is paid for."""
    trace = Trace()

    run(two_tasks(RecordingSink()), instruments=[trace], batch_size=40)

    assert received(trace) == [(40 * US, 40), (80 * US, 40), (120 * US, 20)]


def test_records_of_other_tasks_may_cost_too() -> None:
    """A sink that needs 3 µs per record takes each batch when it has finished the one before."""
    trace = Trace()

    run(two_tasks(RecordingSink(), 80), instruments=[trace], batch_size=40, cost=CostModel(record_ns=3 * US))

    assert received(trace) == [(160 * US, 40), (280 * US, 40)]


@pytest.mark.parametrize("name", ["out", "out[0]"])
def test_a_straggler_is_slow_by_its_factor(name: str) -> None:
    """A straggler's records cost a multiple of the others'."""
    trace = Trace()
    cost = CostModel(record_ns=1 * US, stragglers={name: 5})

    run(two_tasks(RecordingSink(), 40), instruments=[trace], batch_size=40, cost=cost)

    assert received(trace) == [(240 * US, 40)]


@pytest.mark.parametrize(("kill_at_us", "processed"), [(39, 0), (40, 0), (43, 1), (45, 1), (46, 2), (159, 39)])
def test_a_kill_strikes_at_the_record_of_its_instant(kill_at_us: int, processed: int) -> None:
    """A task dies having processed exactly the records whose cost is paid by then."""
    sink = RecordingSink()
    cost = CostModel(record_ns=3 * US)

    run(two_tasks(sink, 40), kills=[("out", kill_at_us * US)], batch_size=40, cost=cost)

    assert sink.records_of_attempt(1) == list(range(processed))
    assert sink.records_of_attempt(2) == list(range(40))


def test_latency_shifts_everything_alike() -> None:
    """A link's latency delays only what the receiver sees."""
    trace = Trace()

    run(two_tasks(RecordingSink(), 80), instruments=[trace], batch_size=40, cost=CostModel(link_latency_ns=7))

    assert received(trace) == [(40 * US + 7, 40), (80 * US + 7, 40)]


class Alarm(KeyedProcessFunction):
    """Emits each record, and once, ``delay_ms`` after the first record, how many it has seen by then."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms

    def open(self, ctx: Any) -> None:
        self.seen = ctx.value_state("seen", 0)

    def process_element(self, value: int, ctx: Any) -> list[Any]:
        if self.seen.get() == 0:
            ctx.register_processing_time_timer(ctx.processing_time_ms() + self.delay_ms)
        self.seen.update(self.seen.get() + 1)
        return []

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        return [(timestamp_ms - START_NS // MS, self.seen.get())]


@pytest.mark.parametrize("batch_size", [1, 100, 10_000])
def test_a_processing_timer_cuts_the_batch(batch_size: int) -> None:
    """A timer that is due when a batch comes sees exactly the records processed by its time, at every batch size."""
    results, trace = CollectedResults(), Trace()
    source = CollectionSource([0, Pause(1), *range(10_000)])
    job = Job("alarm").source(source, name="numbers").key_by(lambda number: 0)
    job.process(Alarm(3), name="alarm").collect(results)
    cost = CostModel(source_record_ns=0, record_ns=1 * US)

    run(job._job, instruments=[trace], batch_size=batch_size, cost=cost, checkpoint_interval=None)

    assert results.records == [(3, 2_001)]
    assert [(one.time_ns - START_NS, one.operator) for one in trace.of(TimerFired)] == [(3 * MS, "alarm")]


def test_timers_are_quiet_after_the_end_of_data() -> None:
    """A timer that is due when the input of its task has ended does not fire: no record follows the end of data."""
    results, sink = CollectedResults(), RecordingSink()
    job = Job("quiet")
    ended = job.source(SequenceSource(0, 10), name="ended").key_by(lambda number: 0)
    ended.process(Alarm(5), name="alarm").collect(results)
    job.source(CollectionSource(["a", Pause(20), "b"]), name="longer").sink(sink)

    run(job, checkpoint_interval=every(ns=2 * MS))

    assert results.records == []
    assert sink.records_of_attempt(1) == ["a", "b"]


def test_restored_timers_fire() -> None:
    """A timer registered before a checkpoint fires after a restart from it, once."""
    results = CollectedResults()
    job = Job("restored").source(CollectionSource([1, 2, Pause(40), 3]), name="numbers")
    job.key_by(lambda number: 0).process(Alarm(10), name="alarm").collect(results)
    made = execution(
        job._job, kills=[("alarm", 5 * MS)], checkpoint_interval=every(ns=2 * MS), cost=NOTHING_COSTS, batch_size=1
    )

    result = made.run().raise_on_failure()

    assert result.restores[1].checkpoint_id is not None
    assert [seen for _, seen in results.records] == [2]


def test_a_stream_that_ends_while_idle_still_fires_its_last_window() -> None:
    """The watermark at the end of an idle stream is used."""
    results = CollectedResults()
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_idleness(5)
    job = Job("idle").source(CollectionSource([1, 12, 23, Pause(100)]), watermarks=strategy, name="numbers")
    windows = job.key_by(lambda number: 0).window(TumblingEventTimeWindows.of(10))
    windows.reduce(lambda a, b: a + b).collect(results)

    run(job._job)

    assert [one[3] for one in results.records] == [1, 12, 23]


class Picky:
    """A map function that refuses one record, in the first ``attempts`` attempts."""

    def __init__(self, refused: int, times: int) -> None:
        self.refused, self.left = refused, times

    def __call__(self, number: int) -> int:
        if number == self.refused and self.left:
            self.left -= 1
            raise ValueError("cannot digest this")
        return number


def picky_job(times: int, into: Any) -> Job:
    """A job with a function that fails ``times`` times on record 77."""
    return Job("picky").source(SequenceSource(0, 100)).map(Picky(77, times), name="digest").collect(into)


@pytest.mark.parametrize("batch_size", [1, 8, 4096])
def test_a_users_error_names_operator_record_and_attempt(batch_size: int) -> None:
    """The job fails with an error that names the operator, the record and the attempt in which the function raised."""
    result = execution(picky_job(99, []), batch_size=batch_size, restart=NoRestart()).run()

    assert result.state == "failed"
    cause = result.error.__cause__ if result.error else None
    assert isinstance(result.error, JobFailedError)
    assert isinstance(cause, UserFunctionError)
    assert (cause.operator, cause.record, cause.attempt) == ("digest", 77, 1)
    for part in ("digest", "77", "cannot digest this", "attempt 1", "no restart"):
        assert part in str(result.error)
    assert result.error.exit_code == UserFunctionError.exit_code


def test_an_error_that_goes_away_costs_a_restart_only() -> None:
    """A function that fails twice and then works leaves the output of one that always works."""
    results = CollectedResults()

    result = run(picky_job(2, results), batch_size=8, checkpoint_interval=every(records=10))

    assert result.attempts == 3
    assert Counter(results.records) == Counter(range(100))


def test_the_trace_tells_what_became_of_each_task() -> None:
    """Every task of every attempt reports its states, and the failed one its cause."""
    trace = Trace()

    run(two_tasks(RecordingSink()), instruments=[trace], kills=[("out", 50 * US)], batch_size=10)

    states = [(one.attempt, one.task, one.state) for one in trace.of(TaskState)]
    assert (1, "out[0]", "failed") in states
    assert (1, "numbers[0]", "canceled") in states
    assert {state for attempt, _, state in states if attempt == 2} == {"running", "end_of_data", "finished"}
    causes = [one.cause for one in trace.of(TaskState) if one.state == "failed"]
    assert causes == ["TaskKilledError: out[0] was killed"]


def test_operators_are_closed_once_in_every_attempt() -> None:
    """``close`` comes exactly once per attempt, after a failure too, and no other call follows it."""
    sink = RecordingSink()

    run(two_tasks(sink), kills=[("numbers", 50 * US)], batch_size=10)

    for attempt in (1, 2):
        calls = [what for found, what, _ in sink.calls if found == attempt]
        assert calls.count("close") == 1
        assert calls[-1] == "close"


def test_a_failing_close_does_not_hide_the_failure() -> None:
    """An error that closing raises after a failure is noted; the job reports the failure itself."""

    class BadClose(RecordingSink):
        name = "bad-close"

        def create_operator(self) -> Any:
            operator = super().create_operator()

            def close() -> None:
                raise OSError("cannot close")

            if self.calls == []:
                operator.close = close  # type: ignore[method-assign]
            self.calls.append((0, "created", None))
            return operator

    result = run(two_tasks(BadClose()), kills=[("out", 50 * US)], batch_size=10)

    assert any("closing out[0] after a failure: cannot close" in note for note in result.notes)
    assert any("out[0] was killed" in note for note in result.notes)
