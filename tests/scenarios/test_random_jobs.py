"""Random jobs with random faults: exactly-once counts once, at-least-once at least once, whatever the job is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoint.restart import FixedDelayRestart
from engine.graph.job import Job
from engine.graph.stream import Stream
from engine.observe.cut_oracle import CutOracle
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.cost import CostModel
from engine.runtime.execution import Execution
from operators.sinks import CollectedResults
from operators.sources import SequenceSource

KEYS = 5
MOST_EVENTS = 60_000

SPREAD: dict[str, Callable[[Stream], Stream]] = {
    "by default": lambda stream: stream,
    "rebalance": Stream.rebalance,
    "rescale": Stream.rescale,
    "global": Stream.global_,
    "custom": lambda stream: stream.partition_custom(lambda pair, subtasks: pair[0] % subtasks),
}


@dataclass
class Plan:
    """One job to run and what is done to it."""

    job: Job
    results: CollectedResults
    expected: Counter[tuple[int, int]]
    config: RunConfig
    kills: list[tuple[str, int]]


@st.composite
def branches(draw: st.DrawFn, job: Job, number: int, records: int) -> Stream:
    """One source and what comes behind it up to the union."""
    parallelisms = st.integers(1, 3)
    source = SequenceSource(0, records, splits=draw(parallelisms))
    stream = job.source(source, name=f"source {number}", parallelism=draw(st.integers(1, 2)))
    stream = stream.map(lambda value: (value % KEYS, 1), parallelism=draw(parallelisms), chain=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 2))):
        stream = SPREAD[draw(st.sampled_from(sorted(SPREAD)))](stream)
        stream = stream.map(lambda pair: pair, parallelism=draw(parallelisms), chain=draw(st.booleans()))
    return stream


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, CollectedResults, Counter[tuple[int, int]]]:
    """Up to three branches, a count per key behind their union, and a sink."""
    job, results, sizes = Job("random"), CollectedResults(), Counter[int]()
    streams = []
    for number in range(draw(st.integers(1, 3))):
        records = draw(st.integers(0, 40))
        sizes.update(value % KEYS for value in range(records))
        streams.append(draw(branches(job, number, records)))
    merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    counted = merged.key_by(lambda pair: pair[0]).reduce(
        lambda a, b: (a[0], a[1] + b[1]), parallelism=draw(st.integers(1, 3)), name="count"
    )
    if draw(st.booleans()):
        counted = counted.rebalance().map(lambda pair: pair, parallelism=draw(st.integers(1, 3)))
    counted.collect(results, parallelism=draw(st.integers(1, 2)), chain=draw(st.booleans()))
    expected = Counter((key, count) for key, size in sizes.items() for count in range(1, size + 1))
    return job, results, expected


@st.composite
def plans(draw: st.DrawFn, mode: str) -> Plan:
    """A job, costs, settings and kills."""
    job, results, expected = draw(jobs())
    names = st.sampled_from([subtask.name for subtask in job.plan().subtasks])
    cost = CostModel(
        source_record_ns=draw(st.sampled_from((0, 1_000))),
        record_ns=draw(st.sampled_from((0, 0, 300, 2_500))),
        link_latency_ns=draw(st.sampled_from((0, 0, 700))),
        link_bytes_per_s=draw(st.sampled_from((None, None, 50_000_000))),
        storage_latency_ns=draw(st.sampled_from((0, 0, 2_000))),
        stragglers=draw(st.dictionaries(names, st.sampled_from((0.5, 3.0)), max_size=1)),
        slow_links=draw(st.dictionaries(names, st.sampled_from((500, 3_000, 20_000)), max_size=2)),
    )
    intervals = [CheckpointInterval(time_ns=ns) for ns in (3_000, 10_000, 25_000)]
    config = RunConfig(
        mode=mode,
        seed=str(draw(st.integers(0, 10**6))),
        batch_size=draw(st.sampled_from((1, 2, 7, 64))),
        channel_capacity=draw(st.sampled_from((None, 1, 3, 50))),
        checkpoint_interval=draw(st.sampled_from((None, CheckpointInterval(records=11), *intervals))),
        max_concurrent=draw(st.sampled_from((1, 1, 2))),
        retained=draw(st.integers(1, 3)),
        tolerable_failures=10**6,
        checkpoint_timeout_ns=draw(st.sampled_from((200_000, 600 * 10**9))),
        min_pause_ns=draw(st.sampled_from((0, 2_000))),
        restart=FixedDelayRestart(None, draw(st.sampled_from((0, 1_000, 50_000)))),
        cost=cost,
    )
    kills = draw(st.lists(st.tuples(names, st.integers(0, 120_000)), max_size=3))
    return Plan(job, results, expected, config, kills)


def run(plan: Plan) -> CutOracle:
    """Run to the end, with the invariants checked now and then."""
    oracle = CutOracle()
    execution = Execution(plan.job.plan(), plan.config, instruments=[oracle])
    for target, at_ns in plan.kills:
        execution.kill(target, at_ns)

    def step(_progress: Any) -> None:
        while execution.kernel.run(13) == 13 and not execution.kernel.stopped:
            execution.manager.validate()
            assert execution.kernel.executed < MOST_EVENTS, "the job comes to no end"

    execution._run_kernel = step  # type: ignore[method-assign, assignment]
    execution.run().raise_on_failure()
    return oracle


@settings(max_examples=120)
@given(plans("aligned"))
def test_aligned_counts_every_record_once(plan: Plan) -> None:
    """The committed running counts are those of one pass, and every checkpoint was a consistent cut."""
    oracle = run(plan)

    assert Counter(plan.results.records) == plan.expected
    assert oracle.held


@settings(max_examples=60)
@given(plans("at-least-once"))
def test_at_least_once_loses_nothing(plan: Plan) -> None:
    """Every count that one pass gives is committed; no cut leaves a record behind."""
    oracle = run(plan)

    assert not plan.expected - Counter(plan.results.records)
    assert all(verdict.in_transit == 0 for verdict in oracle.verdicts)


@settings(max_examples=30)
@given(plans("none"))
def test_without_checkpoints_a_job_that_is_restarted_begins_anew(plan: Plan) -> None:
    """Nothing is published before the end, so no kill loses anything; what a finished sink has published stays."""
    run(plan)

    assert Counter(plan.results.records) >= plan.expected
