"""Functions that anchor, acknowledge and fail records themselves, and sources that are called back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.arrival_processes import Periodic
from engine.elements.errors import JobFailedError
from engine.elements.source import SpoutMessage
from engine.graph.job import Job
from engine.job_runner import has_arrivals
from engine.observe.trace_events import AckingMessage
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from operators.basic import (
    AckingContext,
    AckingFunction,
    CollectedResults,
    CollectSink,
    ListCheckpointed,
    TrackedRecord,
)
from operators.basic.acking_function import AckingOperator
from operators.sources import Arrivals, FunctionSource, SequenceSource, SourceFunction, SpoutSource
from tests.operators.harness import Harness
from tests.runtime.acking.acked_jobs import acking_config, at_once, run_acked
from tests.runtime.support import MS, US


class Settled(AckingFunction):
    """Emits each record and acknowledges it."""

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        ctx.emit(record.value)
        ctx.ack(record)


class Pairs(AckingFunction):
    """Emits two records as one, anchored to both."""

    def open(self, ctx: AckingContext) -> None:
        self.first: TrackedRecord | None = None

    def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
        first, self.first = self.first, record
        if first is None:
            return
        ctx.emit((first.value, record.value), anchors=[first, record])
        ctx.ack(first)
        ctx.ack(record)
        self.first = None


def _function(process: Callable[[TrackedRecord, AckingContext], None]) -> AckingFunction:
    made = AckingFunction()
    made.process_element = process  # type: ignore[method-assign]
    return made


def _job(function: AckingFunction | type[AckingFunction], results: CollectedResults, **source: Any) -> Job:
    """numbers -> function -> sink, every arrow a channel."""
    job = Job("functions", parallelism=1)
    numbers = job.source(SpoutSource(SequenceSource(0, source.pop("records", 4)), **source), name="numbers")
    handled = numbers.rebalance().process(function, name="function", chain=False)
    handled.sink(CollectSink(results), name="sink", chain=False)
    return job


def test_a_record_that_a_function_acknowledges_costs_what_one_costs_that_its_task_acknowledges() -> None:
    """INIT, an ACK per tuple, a reply: three control messages for a source and one bolt."""
    results = at_once()
    job = Job("one bolt", parallelism=1)
    job.source(SequenceSource(0, 4), name="numbers").rebalance().process(
        _function(lambda record, ctx: ctx.ack(record)), name="bolt", chain=False
    ).sink(CollectSink(results), chain=False)
    _, acking = run_acked(job)

    assert acking.control == {"init": 4, "ack": 4, "fail": 0, "reset": 0, "reply": 4}
    assert results.records == []


def test_a_tuple_with_two_anchors_is_in_the_trees_of_both() -> None:
    """It is acknowledged once per root; both sources' records wait for it."""
    results = at_once()
    _, acking = run_acked(_job(Pairs, results))

    assert results.records == [(0, 1), (2, 3)]
    # A tuple to the function per record; per pair one tuple with two roots to the sink.
    assert acking.control["ack"] == 4 + 2 * 2
    assert acking.completed == 4


def test_a_record_lost_with_the_task_comes_again_if_it_was_anchored_and_not_otherwise() -> None:
    """The sink dies with tuples on its channel. (Storm: unanchored tuples are lost.)"""

    def outcome(function: AckingFunction) -> tuple[Counter[Any], int]:
        results = at_once()
        job = _job(function, results, records=10)
        config = acking_config(seed=1)
        _, acking = run_acked(job, config, kills=[("sink[0]", 5 * US)])
        return Counter(results.records), acking.replayed

    anchored, again = outcome(Settled())
    assert set(anchored) == set(range(10))
    assert again > 0

    def unanchored(record: TrackedRecord, ctx: AckingContext) -> None:
        ctx.emit(record.value, anchors=())
        ctx.ack(record)

    loose, again = outcome(_function(unanchored))
    assert set(loose) < set(range(10))
    assert again == 0


def test_records_that_wait_in_a_function_are_lost_with_it_and_come_again() -> None:
    """A function holds the first of two records when its task dies: nobody has acknowledged it."""
    results = at_once()
    _, acking = run_acked(_job(Pairs, results, records=10), kills=[("function[0]", 3 * US)])

    assert {number for pair in results.records for number in pair} == set(range(10))
    assert acking.completed == 10
    assert acking.timed_out > 0


def test_a_failed_record_is_sent_again_at_once() -> None:
    """The source hears of the failure long before the timeout, and calls back."""
    failed: list[SpoutMessage] = []
    acked: list[int] = []
    seen: set[int] = set()
    results = at_once()

    def second_time(record: TrackedRecord, ctx: AckingContext) -> None:
        if record.value not in seen:
            seen.add(record.value)
            ctx.fail(record)
        else:
            ctx.emit(record.value)
            ctx.ack(record)

    job = _job(_function(second_time), results, ack=lambda message: acked.append(message.value), fail=failed.append)
    _, acking = run_acked(job)

    assert sorted(results.records) == sorted(acked) == [0, 1, 2, 3]
    assert [(message.value, message.number, message.replays) for message in failed] == [(n, n, 0) for n in range(4)]
    assert acking.failed == acking.replayed == acking.control["fail"] == 4
    assert acking.timed_out == 0
    assert acking.latency_max_ns < 1 * MS


def test_a_function_chained_to_the_source_may_keep_or_fail_its_record() -> None:
    """The root stays incomplete without any tuple on a channel."""
    results = at_once()
    once: set[int] = set()

    class Chained(Pairs):
        def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
            if record.value == 1 and record.value not in once:
                once.add(1)
                ctx.fail(record)
            else:
                super().process_element(record, ctx)

    job = Job("chained", parallelism=1)
    job.source(SequenceSource(0, 4), name="numbers").process(Chained, name="pairs").sink(CollectSink(results))
    assert len(job.plan().vertices) == 1
    _, acking = run_acked(job)

    assert sorted(number for pair in results.records for number in pair) == [0, 1, 2, 3]
    assert acking.failed == 1
    assert acking.completed == 4


def test_a_source_may_have_fewer_records_pending_than_the_run_allows() -> None:
    """Its own limit counts; the statistics of its subtask show it."""
    results = at_once()
    _, acking = run_acked(_job(Settled, results, records=20, max_pending=3))

    assert acking.max_pending == 3
    assert acking.spouts["numbers[0]"].max_pending == 3
    assert acking.as_dict()["spouts"]["numbers[0]"] == {
        "tracked": 20, "completed": 20, "failed": 0, "timed_out": 0, "replayed": 0, "max_pending": 3,
        "latency_total_ns": acking.latency_total_ns, "latency_max_ns": acking.latency_max_ns,
        "latency_mean_ns": acking.latency_mean_ns,
    }  # fmt: skip


def test_a_timeout_that_is_restarted_lets_a_record_wait_longer_than_the_timeout() -> None:
    """RESET goes to the acker and on to the source; without it the record would be sent again."""

    def waiting(restarts: bool) -> int:
        class Waits(AckingFunction):
            def open(self, ctx: AckingContext) -> None:
                self.kept: list[TrackedRecord] = []

            def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
                if record.value == 0:
                    self.kept.append(record)
                    return
                ctx.ack(record)
                for one in self.kept:
                    if restarts and record.value < 39:
                        ctx.reset_timeout(one)
                if record.value == 39:
                    for one in self.kept:
                        ctx.ack(one)
                    self.kept.clear()

        config = acking_config(timeout_ns=10 * US, max_pending=2)
        _, acking = run_acked(_job(Waits, at_once(), records=40), config)
        return acking.timed_out

    assert waiting(restarts=False) > 0
    assert waiting(restarts=True) == 0


def _twice(record: TrackedRecord, ctx: AckingContext) -> None:
    ctx.ack(record)
    ctx.ack(record)


def _late_anchor(record: TrackedRecord, ctx: AckingContext) -> None:
    ctx.ack(record)
    ctx.emit(record.value)


def _value(record: TrackedRecord, ctx: AckingContext) -> None:
    ctx.ack(record.value)


def _one_anchor(record: TrackedRecord, ctx: AckingContext) -> None:
    ctx.emit(1, anchors=record)  # type: ignore[arg-type]


def _again_in_time(record: TrackedRecord, ctx: AckingContext) -> None:
    ctx.ack(record)
    ctx.reset_timeout(record)


def _returns(record: TrackedRecord, ctx: AckingContext) -> None:
    return [record.value]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("process", "told"),
    [
        (_twice, "was acknowledged before, and its tree may be finished: the function cannot settle it"),
        (_late_anchor, "the function cannot anchor a record to it\n  emit before you settle it"),
        (_value, "is no record that this subtask was given\n  pass records that process_element() got"),
        (_one_anchor, "write anchors=[record]"),
        (_returns, "emit records with ctx.emit"),
        (_again_in_time, "the function cannot restart its timeout\n  leave this call out"),
    ],
)
@pytest.mark.parametrize("mode", ["acking", "aligned"])
def test_a_wrong_use_of_a_record_fails_the_job_and_says_how_to_write_it(process: Any, told: str, mode: str) -> None:
    """In every mode, so that a job is right before it runs with acking."""
    config = acking_config(max_replays=1) if mode == "acking" else RunConfig(mode=mode)
    result = Execution(_job(_function(process), at_once()).plan(), config).run()

    assert result.state == "failed"
    assert told in str(result.error)
    assert "operator 'function'" in str(result.error)


class EmitsInOpen(AckingFunction):
    def open(self, ctx: AckingContext) -> None:
        ctx.emit(1)


class EmitsAtTheEnd(Settled):
    def open(self, ctx: AckingContext) -> None:
        self.ctx = ctx

    def close(self) -> None:
        self.ctx.side_output("late", 1)


@pytest.mark.parametrize("function", [EmitsInOpen, EmitsAtTheEnd])
def test_a_function_emits_only_with_a_record_in_hand(function: type[AckingFunction]) -> None:
    """Nothing would be the anchor of the new record."""
    result = Execution(_job(function, at_once()).plan(), acking_config()).run()

    assert isinstance(result.error, JobFailedError)
    assert "the function of operator 'function': it cannot emit without a record in hand" in str(result.error)


def test_a_record_of_another_subtask_is_refused() -> None:
    """Its tree is tracked by the other task."""
    held: list[tuple[object, TrackedRecord]] = []

    class Foreign(AckingFunction):
        def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
            for owner, one in held:
                if owner is not self:
                    ctx.ack(one)
            held.append((self, record))

    job = Job("foreign")
    numbers = job.source(SequenceSource(0, 2), name="numbers").rebalance()
    numbers.process(Foreign, name="function", parallelism=2).sink(CollectSink(at_once()))
    result = Execution(job.plan(), acking_config()).run()
    assert "<record 0, open> is no record that this subtask was given" in str(result.error)


class Counted(SourceFunction, ListCheckpointed):
    """A source function whose position is its state."""

    number = 0

    def read(self, max_records: int, ctx: Any) -> list[int] | None:
        self.number += 1
        return [self.number] if self.number < 50 else None

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        return [self.number]


def test_a_source_function_that_dies_begins_anew() -> None:
    """There is no checkpoint with its position: records come again, and none is missing."""
    results = at_once()
    job = Job("counted")
    job.source(FunctionSource(Counted), name="numbers").sink(CollectSink(results), name="sink", chain=False)
    run_acked(job, kills=[("numbers[0]", 20 * US)])

    assert set(results.records) == set(range(1, 50))
    assert len(results.records) > 49


@pytest.mark.parametrize("source", [FunctionSource(Counted), Arrivals(Periodic("1/us"), 49, value=lambda n: n + 1)])
def test_a_source_that_makes_its_operators_itself_is_called_back_too(source: Any) -> None:
    """Such as that of a function, and one whose records come at times of their own."""
    acked: list[int] = []
    job = Job("wrapped")
    spout = SpoutSource(source, ack=lambda message: acked.append(message.value), max_pending=2)
    job.source(spout, name="numbers").sink(CollectSink(at_once()), name="sink", chain=False)
    _, acking = run_acked(job)
    assert sorted(acked) == list(range(1, 50))
    assert acking.max_pending == 2
    assert has_arrivals(job.plan()) is isinstance(source, Arrivals)


def test_a_record_that_times_out_calls_the_source_back() -> None:
    """As one that has failed: it comes again."""
    failed: list[int] = []
    job = _job(Pairs, at_once(), records=10, fail=lambda message: failed.append(message.value))
    _, acking = run_acked(job, kills=[("function[0]", 3 * US)])
    assert len(failed) == acking.timed_out > 0
    assert acking.failed == 0


@pytest.mark.parametrize("kind", ["ack", "fail"])
def test_a_callback_that_breaks_is_named(kind: str) -> None:
    """With the record of which it was told."""

    def settle(record: TrackedRecord, ctx: AckingContext) -> None:
        (ctx.ack if kind == "ack" else ctx.fail)(record)

    job = _job(_function(settle), at_once(), **{kind: lambda message: 1 // 0})
    result = Execution(job.plan(), acking_config()).run()
    assert isinstance(result.error, JobFailedError)
    assert f"{kind} callback of operator 'numbers' raised ZeroDivisionError" in str(result.error)


def test_what_comes_after_a_record_with_other_anchors_is_anchored_to_the_record_in_hand() -> None:
    """A side output, behind one that is anchored to none: its tuple is in the tree."""

    def process(record: TrackedRecord, ctx: AckingContext) -> None:
        ctx.emit(record.value, anchors=())
        ctx.side_output("aside", record.value)
        ctx.ack(record)

    results = at_once()
    job = Job("aside", parallelism=1)
    numbers = job.source(SequenceSource(0, 4), name="numbers").rebalance()
    handled = numbers.process(_function(process), name="function", chain=False)
    handled.sink(CollectSink(at_once()), name="sink", chain=False)
    handled.side_output("aside").sink(CollectSink(results), name="aside", chain=False)
    _, acking = run_acked(job)

    assert sorted(results.records) == [0, 1, 2, 3]
    # The tuples to the function and to the side sink; those without anchors are acknowledged to nobody.
    assert acking.control["ack"] == 4 + 4


def test_a_record_that_two_functions_of_a_chain_fail_fails_once() -> None:
    """They have the same tuple; it is not acknowledged afterwards either."""
    once = [True]

    def first(record: TrackedRecord, ctx: AckingContext) -> None:
        ctx.emit(record.value)
        (ctx.fail if once else ctx.ack)(record)
        once.clear()

    def second(record: TrackedRecord, ctx: AckingContext) -> None:
        (ctx.fail if once else ctx.ack)(record)

    job = Job("chain", parallelism=1)
    numbers = job.source(SequenceSource(0, 1), name="numbers").rebalance()
    numbers.process(_function(first), name="first").process(_function(second), name="second").sink(
        CollectSink(at_once())
    )
    _, acking = run_acked(job)
    assert (acking.control["fail"], acking.control["ack"], acking.failed, acking.completed) == (1, 1, 1, 1)


def test_times_and_the_end_of_a_function() -> None:
    """A record has the time of the one in hand unless it has its own; event time goes on; the function is closed."""
    closed: list[int] = []

    class Timed(AckingFunction):
        def process_element(self, record: TrackedRecord, ctx: AckingContext) -> None:
            ctx.emit((record.value, ctx.current_watermark_ms))
            ctx.emit(record.value, timestamp_ms=1)
            ctx.side_output("aside", record.value)

        def close(self) -> None:
            closed.append(1)

    one = Harness(AckingOperator(Timed))
    one.watermark(20)
    one.process(["a"], [30])
    watermark, first, second, (tag, aside) = one.take()
    assert (watermark, tag) == (("watermark", 20), "aside")
    assert [(part.values, part.timestamps) for part in (first, second, aside)] == [
        ([("a", 20)], [30]), (["a"], [1]), (["a"], [30])
    ]  # fmt: skip
    again = Harness(AckingOperator(Timed), restored=one.snapshot(1))
    assert [part.timestamps for part in again.take()[:2]] == [[30], [1]]
    one.close()
    assert closed == [1]


def test_with_checkpoints_records_that_wait_in_a_function_are_in_the_checkpoint() -> None:
    """They come again after the restore, and no record is lost or doubled."""
    results = CollectedResults()
    config = RunConfig(mode="aligned", checkpoint_interval=CheckpointInterval(records=3), batch_size=1)
    execution = Execution(_job(Pairs, results, records=20).plan(), config)
    execution.kill("function[0]", 14 * US)
    result = execution.run()

    assert result.state == "finished"
    assert result.attempts == 2
    assert Counter(number for pair in results.records for number in pair) == Counter(range(20))


def test_with_checkpoints_a_failed_record_sends_the_job_back_to_its_checkpoint() -> None:
    """Without an acker only that brings it again."""
    results, failed = CollectedResults(), [7]

    def fails_once(record: TrackedRecord, ctx: AckingContext) -> None:
        if failed and record.value == failed[0]:
            failed.pop()
            ctx.fail(record)
        ctx.emit(record.value)
        ctx.ack(record)

    config = RunConfig(mode="aligned", checkpoint_interval=CheckpointInterval(records=3), batch_size=1)
    result = Execution(_job(_function(fails_once), results, records=20).plan(), config).run()

    assert result.attempts == 2
    assert sorted(results.records) == list(range(20))


def test_messages_of_a_failed_tree_name_its_root() -> None:
    """The trace shows the FAIL between INIT and the reply."""
    seen: list[AckingMessage] = []
    once: list[int] = [1]

    def process(record: TrackedRecord, ctx: AckingContext) -> None:
        if once:
            once.pop()
            ctx.fail(record)
        else:
            ctx.ack(record)

    def note(event: Any) -> None:
        if isinstance(event, AckingMessage):
            seen.append(event)

    run_acked(_job(_function(process), at_once(), records=1), instruments=[note])
    assert [event.kind for event in seen] == ["init", "fail", "reply", "init", "ack", "reply"]
    assert len({event.root for event in seen}) == 2
