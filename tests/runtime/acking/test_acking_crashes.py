"""Mode ``acking`` under every single death, and under drawn combinations of them: no record is ever missing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.observe.trace_events import AttemptStarted, TaskState
from engine.runtime.config import CheckpointInterval, CostModel
from operators.basic import CollectSink
from operators.sources import CollectionSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from tests.runtime.acking.acked_jobs import acking_config, at_once, expected, pipeline, run_acked
from tests.runtime.support import MS, US, Trace

TARGETS = ("numbers[0]", "numbers[1]", "tens[0]", "ones[1]", "sink[0]", "acker", "acker[1]", "job manager")
RESTART = FixedDelayRestart(None, 3 * US)


@pytest.mark.parametrize("target", TARGETS)
def test_no_record_is_missing_whenever_one_dies(target: str) -> None:
    """At every half microsecond of a run, from its start until all tasks have closed."""
    undisturbed, _ = run_acked(pipeline(at_once(), 6), acking_config(restart=RESTART))
    length_ns = undisturbed.ended_ns - undisturbed.started_ns
    assert length_ns < 40 * US
    struck = 0
    for at_ns in range(0, length_ns + 1, US // 2):
        results = at_once()
        config = acking_config(restart=RESTART, recovery_ns=3 * US)
        result, _ = run_acked(pipeline(results, 6), config, kills=[(target, at_ns)])
        assert result.state == "finished", (at_ns, result.error)
        missing = expected(6) - Counter(results.records)
        assert not missing, (at_ns, missing)
        struck += any("was killed" in note for note in result.notes)
        extra = sum((Counter(results.records) - expected(6)).values())
        read_again = result.source_records - 6
        assert extra <= read_again == result.replayed_records, at_ns
    assert struck > 20


def test_a_task_that_comes_back_behind_the_end_of_the_data_hears_of_the_end() -> None:
    """Its inputs repeat the end of the data; its outputs do not."""
    trace, results = Trace(), at_once()
    job = pipeline(results, 4, parallelism=1, splits=1)
    # The source sends the end of the data once all is acknowledged; "ones" has ended then, and waits for the others.
    plain, _ = run_acked(job, acking_config(restart=RESTART), instruments=(trace,))
    ended_ns = next(one.time_ns for one in trace.of(TaskState) if (one.task, one.state) == ("ones[0]", "end_of_data"))
    again = Trace()
    job = pipeline(results, 4, parallelism=1, splits=1)
    kills = [("ones[0]", ended_ns - plain.started_ns)]
    result, _ = run_acked(job, acking_config(restart=RESTART), kills=kills, instruments=(again,))

    assert result.state == "finished"
    assert len(again.of(AttemptStarted)) == 2
    states = [(one.attempt, one.state) for one in again.of(TaskState) if one.task == "ones[0]"]
    assert states[-3:] == [(2, "running"), (2, "end_of_data"), (2, "finished")]


def test_event_time_goes_on_for_a_task_that_comes_back_and_does_not_wait_for_what_comes_again() -> None:
    """A window closes although the task that sends its watermarks has died; a record that is sent again may be late."""
    def counts(kills: list[tuple[str, int]]) -> tuple[Counter[int], int]:
        results = at_once()
        job = Job("windows")
        items = [(number % 2, number) for number in range(40)]
        strategy = WatermarkStrategy.for_monotonous_timestamps(lambda item: item[1]).with_interval_ns(1 * US)
        stream = job.source(CollectionSource(items), name="items", watermarks=strategy)
        relayed = stream.rebalance().map(lambda item: item, name="relay")
        windows = relayed.key_by(lambda item: item[0]).window(TumblingEventTimeWindows(10))
        windows.reduce(lambda a, b: (a[0], a[1] + b[1]), name="sum").rebalance().sink(CollectSink(results), name="out")
        result, _ = run_acked(job, acking_config(restart=RESTART), kills=kills)
        assert result.state == "finished"
        late = sum(values.get("numLateRecordsDropped", 0) for values in result.counters.values())
        return Counter(results.records), late

    undisturbed, late = counts([])
    assert len(undisturbed) == 8
    assert late == 0
    disturbed, late = counts([("relay", 15 * US)])
    assert late > 0
    assert sum(one[3][1] for one in disturbed) < sum(one[3][1] for one in undisturbed)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_record_is_missing_whatever_dies_and_however_long_things_take(data: st.DataObject) -> None:
    """Up to three deaths, any of the settings that change when things happen, and little room on the channels."""
    draw = data.draw
    results = at_once()
    config = acking_config(
        seed=str(draw(st.integers(0, 99), "seed")),
        batch_size=draw(st.sampled_from([1, 3, 64]), "batch size"),
        timeout_ns=draw(st.sampled_from([300 * US, 3 * MS]), "timeout"),
        max_pending=draw(st.sampled_from([None, 5, 1]), "pending"),
        ackers=draw(st.sampled_from([None, 1, 3]), "ackers"),
        recovery_ns=5 * US,
        restart=FixedDelayRestart(None, draw(st.sampled_from([0, 2 * US, 50 * US]), "restart")),
        channel_capacity=draw(st.sampled_from([None, 2, 10]), "capacity"),
        output_capacity=draw(st.sampled_from([0, 4]), "output capacity"),
        checkpoint_interval=draw(
            st.sampled_from([None, CheckpointInterval(time_ns=3 * US), CheckpointInterval(records=4)]), "commits"
        ),
        cost=CostModel(
            link_latency_ns=draw(st.sampled_from([0, 1 * US, 7 * US]), "latency"),
            record_ns=draw(st.sampled_from([0, 500]), "record"),
            link_bytes_per_s=draw(st.sampled_from([None, 50_000_000]), "bandwidth"),
        ),
    )
    kills = draw(st.lists(st.tuples(st.sampled_from(TARGETS[:6]), st.integers(0, 80 * US)), max_size=3), "kills")
    kills = [kill for kill in kills if kill[0] != "acker[1]" or config.acking.ackers == 3]
    result, acking = run_acked(pipeline(results, 24), config, kills=kills)

    assert result.state == "finished", result.error
    assert not expected(24) - Counter(results.records)
    extra = sum((Counter(results.records) - expected(24)).values())
    assert extra <= result.replayed_records == result.source_records - 24
    assert acking.max_pending <= (config.acking.max_pending or 24 + acking.replayed)
    if not kills:
        assert extra == acking.replayed == acking.lost == 0
