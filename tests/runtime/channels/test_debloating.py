"""Buffer debloating limits the records in flight to what a task takes in the target time, and changes nothing else."""

from __future__ import annotations

from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.cli.settings import RunOptions
from engine.elements.errors import ConfigurationError
from engine.graph.job import Job
from engine.observe.trace import TraceDigest
from engine.observe.trace_events import CreditChanged, RecordsCaptured, Send, SnapshotTaken
from engine.runtime.channels import TaskDebloater
from engine.runtime.channels.debloating import CreditCalculator, ThroughputMeter
from engine.runtime.config import CostModel, DebloatSettings, RunConfig
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.channels.links import Link, records
from tests.runtime.support import MS, US, Trace, checked, every, execution, expected_counts, running_count

# --- throughput -------------------------------------------------------------------------------------------------------


def test_time_without_input_is_not_counted() -> None:
    """A task that handled 30 records in 60 ns of work takes 50 in 100 ns, however long it had no input."""
    meter = ThroughputMeter()
    meter.input_available(100)
    meter.input_idle(140)
    meter.input_available(1_000)
    meter.input_idle(1_020)
    meter.input_idle(5_000)

    assert meter.records_within(100, 30, now_ns=9_000) == 50


def test_work_goes_on_from_one_period_to_the_next() -> None:
    """Neither the time before a period nor the records of another period count in it."""
    meter = ThroughputMeter()
    meter.input_available(0)
    meter.input_available(50)

    assert meter.records_within(100, 10, now_ns=100) == 10
    assert meter.records_within(100, 40, now_ns=200) == 40


def test_without_work_nothing_is_known() -> None:
    """An idle period does not show how fast the task is."""
    meter = ThroughputMeter()
    assert meter.records_within(100, 0, now_ns=100) is None
    meter.input_available(100)
    meter.input_idle(200)
    assert meter.records_within(1_000, 10, now_ns=200) == 100

    assert meter.records_within(1_000, 0, now_ns=300) is None


def test_a_task_that_is_held_back_is_slow() -> None:
    """Records were there and none was taken: fewer should be in flight to the task."""
    meter = ThroughputMeter()
    meter.input_available(0)

    assert meter.records_within(1_000, 0, now_ns=100) == 0


# --- credit -----------------------------------------------------------------------------------------------------------


def calculator(configured: int = 1_000, **changes: Any) -> CreditCalculator:
    """Flink's settings, if not changed."""
    return CreditCalculator(DebloatSettings(1_000, 200, **changes), configured)


def run_of(one: CreditCalculator, desired: int, periods: int, channels: int = 1) -> list[int]:
    """The credit after each period."""
    credits = []
    for _ in range(periods):
        one.recalculate(desired, channels)
        one.validate()
        credits.append(one.credit)
    return credits


def test_one_sample_follows_at_once() -> None:
    """Without smoothing the credit is the desired number of records, divided by the channels in use."""
    assert calculator(samples=1).recalculate(120, 1) == 120
    assert calculator(samples=1).recalculate(120, 4) == 30


def test_the_credit_stays_between_its_bounds() -> None:
    """However slow or fast the task is."""
    low, high = calculator(samples=1, min_records=7), calculator(samples=1)

    assert run_of(low, 0, 3) == [7, 7, 7]
    assert run_of(high, 10**9, 3) == [1_000, 1_000, 1_000]
    assert high.recalculate(10**9, 1) is None


def test_the_average_moves_by_its_share() -> None:
    """One of ``n`` samples counts ``2 / (n + 1)``: with 20, a little less than a tenth (Flink's example)."""
    assert run_of(calculator(32_768, threshold_percent=0), 0, 5) == [29_647, 26_823, 24_269, 21_957, 19_866]


def test_it_grows_no_faster_than_it_shrinks() -> None:
    """One period aims at no more than twice the present credit."""
    one = calculator(32_768, threshold_percent=0)
    run_of(one, 0, 5)

    assert run_of(one, 10**9, 6) == [21_758, 23_830, 26_100, 28_586, 31_308, 32_768]


def test_small_credits_grow_again() -> None:
    """From a single record upwards: fractions of a record are kept until they make a whole one."""
    one = calculator(200, threshold_percent=0)
    assert run_of(one, 0, 100)[-1] == 1

    assert run_of(one, 50, 100)[-1] in (49, 50)


def test_small_changes_are_left() -> None:
    """A change of less than a quarter up or down is not announced until such changes add up to a quarter."""
    one = calculator(1_000, samples=1)
    assert one.recalculate(400, 1) == 400

    assert one.recalculate(301, 1) is None
    assert one.recalculate(499, 1) is None
    assert one.recalculate(500, 1) == 500
    assert one.recalculate(375, 1) == 375


def flinks_sizes(most: int, wanted: list[int], samples: int = 20, threshold_percent: int = 25) -> list[int]:
    """A model of its own of ``BufferDebloater`` and ``BufferSizeEMA``: the size that is in force after each period."""
    average, size, sizes = float(most), most, []
    for desired in wanted:
        average += 2 / (samples + 1) * (min(desired, 2 * average) - average)
        average = max(1.0, min(average, float(most)))
        new = int(average + 0.5)
        if new in (1, most) or abs(new - size) >= int(size * threshold_percent / 100):
            size = new
        sizes.append(size)
    return sizes


@pytest.mark.parametrize(
    ("wanted", "miss_percent"),
    [
        ((80,), 25.0),
        ((70,), 7.1),
        ((60,), 24.5),
        ((50,), 12.2),
        ((30,), 31.5),
        ((20,), 4.9),
        ((10,), 4.9),
        ((5, 20), -10.8),
        ((5, 40), -1.0),
        ((5, 60), -10.8),
        ((5, 80), -12.2),
    ],
)
def test_the_threshold_misses_the_target_as_it_does_on_flink(wanted: tuple[int, ...], miss_percent: float) -> None:
    """Period by period the credit is the size that Flink's rule gives, so it settles as far from the desired size."""
    most = 32_768
    desired = [most * percent // 100 for percent in wanted for _ in range(300)]
    ours = [run_of(one, records, 1)[0] for one in (calculator(most),) for records in desired]

    assert max(abs(credit - size) for credit, size in zip(ours, flinks_sizes(most, desired), strict=True)) <= 1
    assert round((ours[-1] / desired[-1] - 1) * 100, 1) == miss_percent
    exact = run_of(calculator(most, threshold_percent=0), desired[-1], 300)
    assert abs(exact[-1] - desired[-1]) <= 1


def test_a_bound_is_always_reached() -> None:
    """However small the last step to it is."""
    one = calculator(100, samples=1, min_records=95)

    assert one.recalculate(96, 1) is None
    assert one.recalculate(95, 1) == 95
    assert one.recalculate(1_000, 1) == 100


@given(
    st.integers(1, 500),
    st.integers(1, 30),
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 5)), max_size=40),
)
def test_any_measurements_keep_the_credit_in_bounds(
    configured: int, samples: int, threshold: int, measured: list[tuple[int, int]]
) -> None:
    """And what is told is what is then the credit."""
    one = calculator(configured, samples=samples, threshold_percent=threshold, min_records=min(3, configured))
    for desired, channels in measured:
        before = one.credit
        told = one.recalculate(desired, channels)
        one.validate()
        assert one.credit == (before if told is None else told)
        assert told != before


# --- a task's channels ------------------------------------------------------------------------------------------------


def test_all_inputs_of_a_task_get_the_same_credit() -> None:
    """Desired is what the task takes of all inputs together; only those that hold records share it."""
    links = [Link(capacity=100), Link(capacity=100), Link(capacity=100)]
    channels = [link.channel for link in links]
    debloater = TaskDebloater(DebloatSettings(1_000, 200, samples=1), links[0].kernel, channels, None)
    debloater.input_available()
    for link in links[:2]:
        link.put(records(*range(30)))
        link.channel.take_records(10)
    links[0].kernel.now_ns += 500

    debloater.period_over()

    # 20 records in 500 ns are 40 in 1,000 ns, for two channels.
    assert [link.channel.input_credit for link in links] == [20, 20, 20]
    debloater.validate()


def test_a_task_that_has_done_nothing_keeps_its_credit() -> None:
    """There is no measurement to go by."""
    link = Link(capacity=100)
    debloater = TaskDebloater(DebloatSettings(1_000, 200, samples=1), link.kernel, [link.channel], None)
    link.kernel.now_ns += 500

    debloater.period_over()

    assert link.channel.input_credit == 100


def test_periods_go_on_where_they_would_have_ended_all_along() -> None:
    """A task without input starts no further period; the next one ends at a multiple of the period's length."""
    link = Link(capacity=100)
    kernel = link.kernel
    debloater = TaskDebloater(DebloatSettings(1_000, 200, samples=1), kernel, [link.channel], None)
    started_ns = kernel.now_ns
    assert debloater.next_period() == started_ns + 200

    kernel.now_ns = started_ns + 200
    debloater.input_available()
    debloater.period_over()
    assert not debloater.rests, "something came at the very end of the period: there is something to measure"
    assert debloater.next_period() == started_ns + 400

    debloater.input_idle()
    kernel.now_ns = started_ns + 400
    debloater.period_over()
    rests = debloater.rests
    assert rests
    kernel.now_ns = started_ns + 1_270
    assert debloater.next_period() == started_ns + 1_400
    rests = debloater.rests
    assert not rests


def test_the_fingerprint_tells_measurements_apart() -> None:
    """The measurements, and the records taken since, decide the next credit."""

    def fingerprint(taken: int, idle: bool, period: bool) -> object:
        link = Link(capacity=100)
        debloater = TaskDebloater(DebloatSettings(1_000, 200), link.kernel, [link.channel], None)
        link.put(records(*range(50)))
        debloater.input_available()
        link.kernel.now_ns += 100
        if taken:
            link.channel.take_records(taken)
        if period:
            debloater.period_over()
        if idle:
            debloater.input_idle()
        return debloater.fingerprint()

    seen = {fingerprint(*which) for which in ((0, False, False), (5, False, False), (5, True, False), (5, False, True))}
    assert len(seen) == 4


# --- whole jobs -------------------------------------------------------------------------------------------------------

SLOW_NS = 20 * US
RATE_TARGET = {1 * MS: 50, 4 * MS: 200}
"""Records that the slow task takes in each target time."""


def backpressured(mode: str, target_ns: int | None, **changes: Any) -> tuple[Any, Trace]:
    """A source that is twenty times faster than its receiver, with a thousand records of credit."""
    results, trace = CollectedResults(), Trace()
    job = Job("slow")
    numbers = job.source(SequenceSource(0, 6_000), name="numbers")
    numbers.rebalance().map(lambda one: one, chain=False, name="slow").collect(results, name="out")
    run_settings: dict[str, Any] = {
        "mode": mode,
        "batch_size": 1,
        "channel_capacity": 1_000,
        "checkpoint_interval": every(ns=10 * MS),
        "cost": CostModel(record_ns=SLOW_NS),
        "debloat_target_ns": target_ns,
        **changes,
    }
    result = execution(job, instruments=[trace], **run_settings).run().raise_on_failure()
    assert results.records == list(range(6_000))
    return result, trace


def steady(trace: Trace) -> list[SnapshotTaken]:
    """The snapshots of the slow task once its credit has settled, and before the source comes to its end."""
    taken = [one for one in trace.of(SnapshotTaken) if one.task.startswith("slow")]
    return [one for one in taken if 60 * MS <= one.time_ns - START_NS <= 100 * MS]


@pytest.mark.parametrize("target_ns", RATE_TARGET)
def test_an_aligned_barrier_takes_the_target_time(target_ns: int) -> None:
    """It waits for what the task handles in that time, within a quarter; without debloating, for all credit."""
    _, trace = backpressured("aligned", target_ns)
    _, plain = backpressured("aligned", None)

    delays = [one.start_delay_ns for one in steady(trace)]
    assert len(delays) >= 4
    assert 0.75 * target_ns <= mean(delays) <= 1.25 * target_ns + SLOW_NS
    assert min(one.start_delay_ns for one in steady(plain)) >= 15 * MS


@pytest.mark.parametrize("target_ns", RATE_TARGET)
def test_an_unaligned_checkpoint_stores_what_is_taken_in_the_target_time(target_ns: int) -> None:
    """Records in flight = throughput x target, on both sides together; without debloating, as many as credit allows."""
    _, trace = backpressured("unaligned", target_ns)
    _, plain = backpressured("unaligned", None)

    def in_flight(of: Trace) -> list[int]:
        ids = {one.checkpoint_id for one in steady(of)}
        captured = [one for one in of.of(RecordsCaptured) if one.checkpoint_id in ids]
        return [sum(one.records for one in captured if one.checkpoint_id == checkpoint_id) for checkpoint_id in ids]

    wanted = RATE_TARGET[target_ns]
    assert 0.75 * wanted <= mean(in_flight(trace)) <= 1.25 * wanted + 1
    assert min(in_flight(plain)) >= 999


def test_the_senders_side_shrinks_with_the_receivers() -> None:
    """The records that may wait beyond the credit shrink in proportion, or they would delay the barrier as much."""
    _, trace = backpressured("aligned", 1 * MS, channel_capacity=500, output_capacity=500)

    settled = [one.queued for one in trace.of(Send) if 60 * MS <= one.time_ns - START_NS <= 100 * MS]

    assert settled
    assert max(settled) <= 2 * 1.25 * RATE_TARGET[1 * MS] + 1


def test_the_credit_follows_the_task() -> None:
    """It settles at what the task takes; insignificant changes are not announced."""
    _, trace = backpressured("aligned", 1 * MS)

    credits = [one.credit for one in trace.of(CreditChanged)]

    assert credits == sorted(credits, reverse=True)
    assert 50 <= credits[-1] <= 63
    assert len(credits) < 20


def test_a_task_that_is_often_idle_is_not_taken_for_slow() -> None:
    """It works a fifth of the time: its throughput while it works counts, not the rate of its input."""
    _, trace = backpressured("aligned", 1 * MS, cost=CostModel(source_record_ns=5 * SLOW_NS, record_ns=SLOW_NS))

    credits = [one.credit for one in trace.of(CreditChanged) if one.channel == 0]

    assert 50 <= credits[-1] <= 63


def test_a_task_that_costs_nothing_keeps_its_credit() -> None:
    """It takes every record at the instant it comes: there is no time to measure, so the credit stays."""
    _, trace = backpressured("aligned", 1 * MS, cost=CostModel())

    assert trace.of(CreditChanged) == []


def test_nothing_is_measured_while_nothing_comes() -> None:
    """After a pause the credit still follows the task, and the clock was not read during the pause."""
    results, trace = CollectedResults(), Trace()
    job = Job("rare")
    numbers = job.source(SequenceSource(0, 40), name="numbers")
    numbers.rebalance().map(lambda one: one, chain=False, name="slow").collect(results, name="out")
    cost = CostModel(source_record_ns=1_000 * MS, record_ns=SLOW_NS)
    settings: dict[str, Any] = {
        "batch_size": 20,
        "checkpoint_interval": every(ns=10_000 * MS),
        "debloat_target_ns": 20 * US,
    }
    run = execution(job, instruments=[trace], cost=cost, **settings)
    run.run().raise_on_failure()
    assert results.records == list(range(40))
    assert run.kernel.executed < 2_000, "40 s of virtual time are ten million periods"
    assert trace.of(CreditChanged), "while records came it was measured"


def digest(**changes: Any) -> str:
    """Of the trace of a run with a crash."""
    seen, results = TraceDigest(), CollectedResults()
    run_settings: dict[str, Any] = {
        "batch_size": 8,
        "channel_capacity": 64,
        "checkpoint_interval": every(ns=60 * US),
        "cost": CostModel(record_ns=3 * US),
        "kills": [("count[1]", 300 * US)],
        **changes,
    }
    job = running_count(Job("same", parallelism=2), 300, results, keys=7)
    execution(job, instruments=[seen], **run_settings).run().raise_on_failure()
    assert sum(expected_counts(300, 7).values()) == len(results.records)
    return seen.hexdigest()


def test_switched_off_it_changes_nothing() -> None:
    """The other settings of debloating have no effect then: the same events at the same times."""
    plain = digest()

    assert digest(debloat_min_records=5, debloat_threshold_percent=0, debloat_samples=3) == plain
    assert digest(debloat_target_ns=40 * US) != plain


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "aligned-timeout", "at-least-once"])
def test_switched_on_it_is_as_deterministic(mode: str) -> None:
    """One seed is one run, also with a crash in between; another seed is another one."""
    changes = {"mode": mode, "debloat_target_ns": 40 * US, "debloat_samples": 2, "debloat_threshold_percent": 0}

    assert digest(**changes) == digest(**changes)
    assert digest(**changes) != digest(seed="2", **changes)


@settings(max_examples=25)
@given(
    st.sampled_from(("aligned", "unaligned", "aligned-timeout")),
    st.integers(1, 40),
    st.integers(1, 30),
    st.sampled_from((0, 20)),
    st.integers(5, 200),
    st.integers(0, 3),
)
def test_no_record_is_lost_however_the_credit_moves(
    mode: str, batch_size: int, capacity: int, output_capacity: int, target_us: int, seed: int
) -> None:
    """Every invariant holds after every event, with a crash and a restore in between, and the output is exact."""
    results = CollectedResults()
    job = running_count(Job("moved", parallelism=2), 150, results, keys=5)

    checked(
        execution(
            job,
            mode=mode,
            seed=str(seed),
            batch_size=batch_size,
            channel_capacity=capacity,
            output_capacity=output_capacity,
            checkpoint_interval=every(ns=40 * US),
            cost=CostModel(record_ns=2 * US, stragglers={"count[1]": 3.0}, link_latency_ns=1 * US),
            kills=[("count[0]", 130 * US)],
            debloat_target_ns=target_us * US,
            debloat_threshold_percent=0,
            debloat_samples=1 + seed,
        )
    ).raise_on_failure()

    assert sorted(results.records) == sorted(expected_counts(150, 5).elements())


# --- settings ---------------------------------------------------------------------------------------------------------


def test_it_is_off_unless_asked_for() -> None:
    """And the period is a fifth of the target, unless given."""
    assert RunConfig().debloating is None
    assert RunConfig(debloat_target_ns=1_000).debloating == DebloatSettings(1_000, 200)
    assert RunConfig(debloat_target_ns=3).debloating == DebloatSettings(3, 1)
    assert RunConfig(
        debloat_target_ns=1_000,
        debloat_period_ns=70,
        debloat_min_records=2,
        debloat_threshold_percent=10,
        debloat_samples=4,
    ).debloating == DebloatSettings(1_000, 70, 2, 10, 4)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"debloat_target_ns": 0}, "debloat_target_ns is 0; it must be at least 1"),
        ({"debloat_target_ns": 1.5}, "debloat_target_ns is 1.5; it must be a whole number"),
        ({"debloat_target_ns": 9, "debloat_period_ns": 0}, "debloat_period_ns is 0; it must be at least 1"),
        ({"debloat_period_ns": 5}, "debloat_period_ns is 5, but nothing is debloated without a debloat_target_ns"),
        ({"debloat_min_records": 0}, "debloat_min_records is 0; it must be at least 1"),
        (
            {"channel_capacity": 10, "debloat_min_records": 11},
            r"debloat_min_records is 11, which is more than channel_capacity \(10\) ever grants",
        ),
        ({"debloat_threshold_percent": -1}, "debloat_threshold_percent is -1; it must be at least 0"),
        ({"debloat_samples": 0}, "debloat_samples is 0; it must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    """With their name, and before anything runs."""
    with pytest.raises(ConfigurationError, match=said):
        RunConfig(**wrong)


def test_it_can_be_typed() -> None:
    """``--debloat 10ms`` sets the target, and a text that is not a time is refused."""
    assert RunOptions.of(debloat="10ms").to_config().debloat_target_ns == 10 * MS
    assert RunOptions().to_config().debloat_target_ns is None
    assert RunOptions.of(debloat="10ms").as_arguments() == ["--debloat", "10ms"]
    with pytest.raises(ConfigurationError, match="debloat target 'soon' is not a time"):
        RunOptions.of(debloat="soon").to_config()
