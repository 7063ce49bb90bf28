"""Numbers that theory gives in closed form, measured on whole jobs: exact where nothing is random, else within 2 %."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import pytest

from engine.checkpoint.coordinator import CheckpointRow, TaskId
from engine.checkpoint.restore import NoRestart
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan
from engine.graph.stream import Stream
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointTriggered, Send, TaskState
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import ChoiceRecorder
from operators.basic import CollectedResults
from operators.sources import GeneratorSource, SequenceSource
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.runtime.support import US, Trace

MODES = ("aligned", "unaligned", "aligned-timeout", "at-least-once")
MINUTE_NS = 60 * 10**9


def executed(job: Job, *instruments: Any, **settings: Any) -> ExecutionResult:
    config = RunConfig(**{"checkpoint_interval": None, "seeded_schedule": False, **settings})
    return Execution(job.plan(), config, instruments=instruments).run().raise_on_failure()


def every(time_ns: int) -> CheckpointInterval:
    return CheckpointInterval(time_ns=time_ns)


def ended_rows(result: ExecutionResult, *, before_ns: int) -> list[CheckpointRow]:
    """Completed checkpoints that were over before the end of the input was in sight."""
    return [
        row
        for row in result.checkpoints.rows()
        if row.ended_at_ns is not None and row.ended_at_ns < before_ns and row.failure_reason is None
    ]


# --- barriers ---------------------------------------------------------------------------------------------------------


def shuffled_twice(parallelism: int) -> Job:
    """Two sources, all-to-all edges, a broadcast, a side road: some hundred channels."""
    job = Job("many channels", parallelism=parallelism)
    one = job.source(SequenceSource(0, 100 * parallelism, splits=parallelism), name="one")
    two = job.source(SequenceSource(0, 100 * parallelism, splits=parallelism), name="two")
    counted = one.union(two).key_by(lambda number: number % 7).reduce(max, name="count")
    spread = counted.rebalance().map(lambda number: number, name="spread", parallelism=2 * parallelism)
    spread.rescale().map(lambda number: number, name="near", parallelism=parallelism).collect([], name="out")
    counted.broadcast().filter(lambda number: number < 0, name="everywhere").collect([], name="other", chain=False)
    return job


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_a_checkpoint_sends_one_barrier_per_channel(mode: str, parallelism: int) -> None:
    """No more and no fewer, whatever the mode and whether barriers overtake."""
    trace, job = Trace(), shuffled_twice(parallelism)

    executed(job, trace, mode=mode, checkpoint_interval=every(20 * US), batch_size=4)

    ended_ns = next(event.time_ns for event in trace.of(TaskState) if event.state == "end_of_data")
    triggered = [event.checkpoint_id for event in trace.of(CheckpointTriggered) if event.time_ns < ended_ns]
    barriers = [(one.detail, one.channel) for one in trace.of(Send) if one.kind == "CheckpointBarrier"]
    channels = len(job.plan().channels)
    assert len(triggered) > 3
    for checkpoint_id in triggered:
        assert sorted(channel for found, channel in barriers if found == checkpoint_id) == list(range(channels))


# --- alignment --------------------------------------------------------------------------------------------------------

MEAN_DELAY_NS = 1_000_000


def _uniform(choices: ChoiceRecorder, stream: str) -> float:
    return (choices.draw(stream, 1 << 53) + 0.5) / (1 << 53)


def exponential_delays(inputs: int, samples: int) -> Iterator[list[int]]:
    """Independent, exponentially distributed delays of ``inputs`` links, ``samples`` times.

    Stratified over the longest delay: it is drawn first, in sample ``k`` from the ``k``-th part of its distribution;
    the others are as they are, given that they are shorter. Few samples do that way.
    """
    choices = ChoiceRecorder(f"{inputs} inputs")
    for sample in range(samples):
        below = ((sample + _uniform(choices, "stratum")) / samples) ** (1 / inputs)
        others = [_uniform(choices, "delay") * below for _ in range(inputs - 1)]
        delays = [round(-MEAN_DELAY_NS * log(1 - part)) for part in (below, *others)]
        at = choices.draw("place of the longest", inputs)
        delays[0], delays[at] = delays[at], delays[0]
        yield delays


def measured_alignment_ns(delays: list[int]) -> int:
    """Of the last checkpoint of a job whose sources have nothing to send but barriers."""
    job = Job("aligned")
    silent = job.source(SequenceSource(0, 0, splits=len(delays)), name="source", parallelism=len(delays))
    silent.global_().collect([], name="out", parallelism=1)
    cost = CostModel(slow_links={f"source[{subtask}]": delay for subtask, delay in enumerate(delays)})
    (row,) = executed(job, cost=cost, channel_capacity=1).checkpoints.rows()
    return next(one.metrics.alignment_ns for one in row.subtasks if one.task == (1, 0))


@pytest.mark.parametrize(("inputs", "samples"), [(10, 60), (100, 25), pytest.param(1_000, 12, marks=pytest.mark.slow)])
def test_alignment_lasts_from_the_first_barrier_to_the_last(inputs: int, samples: int) -> None:
    """Of p links with independent exponential delays of mean d: longest less shortest, d * H(p - 1) on average."""
    measured = []
    for delays in exponential_delays(inputs, samples):
        alignment_ns = measured_alignment_ns(delays)
        assert alignment_ns == max(delays) - min(delays)
        measured.append(alignment_ns)

    expected_ns = MEAN_DELAY_NS * sum(1 / number for number in range(1, inputs))
    assert sum(measured) / samples == pytest.approx(expected_ns, rel=0.02)


def chain_of(hops: int) -> Job:
    """A pipeline of one channel per hop."""
    job = Job("chain")
    stream = job.source(SequenceSource(0, 50), name="source")
    for hop in range(hops - 1):
        stream = stream.rebalance().map(lambda number: number, name=f"hop {hop}", chain=False)
    return stream.rebalance().collect([], name="out", chain=False)


@pytest.mark.parametrize("mode", MODES)
def test_a_barrier_is_as_late_as_the_way_is_long(mode: str) -> None:
    """The start delay grows by the latency of a link with every hop; with one input there is no alignment."""
    result = executed(
        chain_of(4), mode=mode, cost=CostModel(link_latency_ns=300), checkpoint_interval=every(10 * US), batch_size=1
    )

    row = result.checkpoints.history[1]
    assert [one.metrics.start_delay_ns for one in sorted(row.subtasks, key=_task)] == [0, 300, 600, 900, 1_200]
    assert all(one.metrics.alignment_ns == 0 for one in row.subtasks)
    assert row.end_to_end_ns == 1_200


def _task(row: Any) -> TaskId:
    task: TaskId = row.task
    return task


# --- at-least-once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delays_us", [(0, 9), (2, 2), (3, 7, 30), (1, 4, 9, 16)])
def test_at_least_once_repeats_what_comes_between_the_barriers(delays_us: tuple[int, ...]) -> None:
    """Channels of rate r whose barriers come at B: the sum of r * (B of the last - B) records."""
    job, oracle = Job("duplicates"), CutOracle()
    sources = [job.source(SequenceSource(0, 200), name=f"source {number}") for number, _ in enumerate(delays_us)]
    sources[0].union(*sources[1:]).key_by(lambda number: 0).reduce(max, name="max").collect([], name="out")
    links = {f"source {number}": delay * US + 500 for number, delay in enumerate(delays_us)}

    executed(
        job,
        oracle,
        mode="at-least-once",
        batch_size=1,
        channel_capacity=1_000,
        checkpoint_interval=every(50 * US),
        cost=CostModel(slow_links=links),
    )

    verdict = oracle.verdict(2)
    assert verdict is not None
    assert verdict.orphans == sum(max(delays_us) - delay for delay in delays_us)
    assert verdict.in_transit == 0


# --- records in flight ------------------------------------------------------------------------------------------------


def stuck(senders: int, receivers: int) -> Job:
    """A record takes a minute: every channel is full."""
    job = Job("stuck")
    source = GeneratorSource(lambda first, last: ["record"] * (last - first), 10**6, senders)
    numbers = job.source(source, name="source", parallelism=senders)
    numbers.rebalance().collect([], name="out", parallelism=receivers)
    return job


def stored(senders: int, receivers: int, input_capacity: int, output_capacity: int) -> tuple[int, int]:
    """Records in flight, and their bytes, in a checkpoint that is over when each receiver has processed one record."""
    config = RunConfig(
        mode="unaligned",
        batch_size=receivers,
        channel_capacity=input_capacity,
        output_capacity=output_capacity,
        checkpoint_interval=every(MINUTE_NS * 3 // 4),
        restart=NoRestart(),
        cost=CostModel(source_record_ns=1, record_ns=MINUTE_NS),
    )
    job, files = stuck(senders, receivers), MemoryFileSystem()
    storage = CheckpointStorage(files, "/checkpoints", job.name)
    execution = Execution(job.plan(), config, storage=storage)
    execution.kill("source", MINUTE_NS * 5 // 4)
    (row,) = execution.run().checkpoints.rows()
    parts = [part for operator in storage.read_metadata(1).operators for part in operator.subtasks.values()]
    handles = [handle for part in parts for handle in (part.input_channels, part.output_channels) if handle is not None]
    return sum(piece.records for handle in handles for piece in handle.pieces), row.persisted_bytes


@pytest.mark.parametrize(("senders", "receivers"), [(1, 1), (3, 2), (4, 8)])
def test_a_saturated_edge_stores_what_its_channels_hold(senders: int, receivers: int) -> None:
    """Channels * capacity records but the one in service per receiver, each of the size that the costs say."""
    channels, record_bytes = senders * receivers, CostModel().record_bytes

    for input_capacity, output_capacity in [(20, 20), (30, 20), (20, 30)]:
        records = channels * (input_capacity + output_capacity) - receivers
        assert stored(senders, receivers, input_capacity, output_capacity) == (records, records * record_bytes)


# --- durations --------------------------------------------------------------------------------------------------------

SOURCE_NS = 1 * US


def backpressured(records: int, parallelism: int = 2) -> Job:
    """Sources, a keyed sum and a sink that is slower than they are."""
    job = Job("backpressured", parallelism=parallelism, max_parallelism=16)
    numbers = job.source(SequenceSource(0, records, splits=parallelism), name="source")
    summed = numbers.key_by(lambda number: number % 7).reduce(lambda a, b: a + b, name="sum")
    summed.rebalance().collect([], name="slow", chain=False)
    return job


def durations(mode: str, sink_ns: int, **settings: Any) -> list[int]:
    """End-to-end durations of the checkpoints taken while the sink is saturated."""
    cost = CostModel(source_record_ns=SOURCE_NS, record_ns=sink_ns, stragglers={"sum": 0.0}, storage_latency_ns=5 * US)
    records = 2_400
    result = executed(
        backpressured(records),
        mode=mode,
        cost=cost,
        batch_size=1,
        channel_capacity=10,
        output_capacity=10,
        checkpoint_interval=every(120 * sink_ns),
        inline_state_bytes=0,
        **settings,
    )
    # Half of the records go to each of two sinks. As long as less than nine tenths of them are processed, it is full.
    rows = ended_rows(result, before_ns=result.started_ns + records // 2 * sink_ns * 9 // 10)
    found = [row.end_to_end_ns for row in rows if row.end_to_end_ns is not None]
    assert len(found) > 5
    return found


def test_a_slower_sink_delays_aligned_checkpoints_only() -> None:
    """Ten times slower: an aligned checkpoint takes ten times as long, an unaligned one as long as before."""
    aligned = [max(durations("aligned", sink_ns)) for sink_ns in (5 * US, 50 * US)]
    unaligned = [max(durations("unaligned", sink_ns)) for sink_ns in (5 * US, 50 * US)]

    assert aligned[1] / aligned[0] == pytest.approx(10, rel=0.1)
    assert unaligned[1] / unaligned[0] == pytest.approx(1, rel=0.1)
    assert aligned[0] > 5 * unaligned[0]


@pytest.mark.parametrize("timeout_ns", [1, 10 * US, 60 * US, 150 * US, 10_000 * US])
def test_with_a_timeout_a_checkpoint_takes_at_most_that_longer(timeout_ns: int) -> None:
    """As long as the timeout and an unaligned one together, but never longer than an aligned one."""
    sink_ns = 10 * US
    unaligned, aligned = durations("unaligned", sink_ns), durations("aligned", sink_ns)

    timed = durations("aligned-timeout", sink_ns, aligned_timeout_ns=timeout_ns)

    assert max(timed) == min(timeout_ns + max(unaligned), max(aligned))


# --- commits ----------------------------------------------------------------------------------------------------------

INTERVAL_NS, STORAGE_NS = 1_000 * US, 137 * US


class Committed(CollectedResults):
    """Also records the times of commits."""

    def __init__(self) -> None:
        super().__init__()
        self.execution: Execution
        self.at_ns: dict[int, int] = {}

    def commit(self, transaction: tuple[str, int, int], records: list[Any]) -> bool:
        self.at_ns.update(dict.fromkeys(records, self.execution.kernel.now_ns))
        return super().commit(transaction, records)


@pytest.mark.parametrize("mode", MODES)
def test_a_record_is_committed_with_the_next_checkpoint(mode: str) -> None:
    """Checkpoints every T that take C: the latency of a commit is uniform on [C, C + T]."""
    job, results, records = Job("commits"), Committed(), 9_900
    plan = _committing(job.source(SequenceSource(0, records), name="source"), job, results)
    config = RunConfig(
        mode=mode,
        batch_size=16,
        checkpoint_interval=every(INTERVAL_NS),
        cost=CostModel(storage_latency_ns=STORAGE_NS),
        inline_state_bytes=0,
    )
    results.execution = Execution(plan, config)

    result = results.execution.run().raise_on_failure()

    duration_ns = result.checkpoints.history[2].end_to_end_ns
    assert duration_ns is not None
    emitted = {number: result.started_ns + (number + 1) * US for number in range(9_000)}
    latencies = sorted(results.at_ns[number] - emitted_ns for number, emitted_ns in emitted.items())
    for position, latency_ns in enumerate(latencies, start=1):
        uniform = (latency_ns - duration_ns) / INTERVAL_NS
        assert abs(position / len(latencies) - uniform) <= 0.02


def _committing(stream: Stream, job: Job, results: CollectedResults) -> ExecutionPlan:
    stream.rebalance().collect(results, name="out", chain=False)
    return job.plan()
