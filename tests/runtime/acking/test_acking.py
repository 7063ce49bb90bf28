"""Mode ``acking``: its costs, its commits, the jobs it refuses; without failures, and with single deaths."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, StorageError
from engine.elements.operator import Operator
from engine.explore.ledger import EffectLedger
from engine.graph.job import Job
from engine.observe.metrics import MessageCounter
from engine.observe.trace import TraceDigest
from engine.observe.trace_events import AckingMessage, RecordReplayed
from engine.protocols.acking.settings import ReplayLimitError, UnacknowledgedError
from engine.report.message_counts import message_counts
from engine.runtime.acking import OFFSETS_FILE_NAME
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution
from operators.basic import CollectedResults, CollectSink
from operators.databases import MemoryDatabase, UpsertSink
from operators.files.sinks import FileSink
from operators.sources import CollectionSource, Pause, SequenceSource
from operators.table.partitions.partition_commit import PartitionCommit
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.runtime.acking.acked_jobs import (
    TIMEOUT_NS,
    acking_config,
    at_once,
    expected,
    pipeline,
    run_acked,
    storage_on,
)
from tests.runtime.job.coordinated_jobs import Dealt, dealing
from tests.runtime.support import MS, US, Trace


def test_undisturbed_every_record_is_handled_once_for_one_init_an_ack_per_task_and_a_reply() -> None:
    """A chain of L bolts costs L data and L+2 control messages per record."""
    results = at_once()
    result, acking = run_acked(pipeline(results))

    assert result.state == "finished"
    assert Counter(results.records) == expected()
    assert acking.data == 3 * 20
    assert acking.control == {"init": 20, "ack": 3 * 20, "fail": 0, "reset": 0, "reply": 20}
    assert acking.completed == acking.tracked == 20
    assert acking.replayed == acking.lost == acking.expired_entries == 0
    # Three channels, the last acknowledgement and the reply, at 1 µs each.
    assert acking.latency_mean_ns == acking.latency_max_ns == 5 * US


def test_a_record_that_goes_to_several_receivers_is_complete_when_all_have_handled_it() -> None:
    """Fan-out at the source and after it: the tree counts, and one reply is sent."""
    results = at_once()
    job = Job("fan-out")
    numbers = job.source(SequenceSource(0, 5), name="numbers")
    for name in ("left", "right"):
        twice = numbers.rebalance().flat_map(lambda number: [number, number], name=name)
        twice.rebalance().sink(CollectSink(results), name=f"{name}-sink")
    result, acking = run_acked(job)

    assert result.state == "finished"
    assert Counter(results.records) == Counter(dict.fromkeys(range(5), 4))
    assert acking.control["ack"] == 5 * (2 + 4)
    assert acking.control["reply"] == 5


def test_a_source_whose_chain_sends_nothing_on_is_acknowledged_by_its_init() -> None:
    """A tree without tuples is complete as soon as the acker has its INIT."""
    results = at_once()
    job = Job("alone")
    job.source(SequenceSource(0, 5), name="numbers").sink(CollectSink(results))
    result, acking = run_acked(job)

    assert result.state == "finished"
    assert results.records == list(range(5))
    assert acking.control == {"init": 5, "ack": 0, "fail": 0, "reset": 0, "reply": 5}


def test_a_task_that_dies_is_deployed_anew_alone_and_what_it_had_is_sent_again() -> None:
    """No other task is restarted; every record arrives, some of them twice."""
    results, trace = at_once(), Trace()
    result, acking = run_acked(pipeline(results), kills=[("ones[0]", 8 * US)], instruments=(trace,))

    assert result.state == "finished"
    assert [restore.tasks for restore in result.restores] == [None, ("ones[0]",)]
    assert not expected() - Counter(results.records)
    assert acking.lost > 0
    replays = trace.of(RecordReplayed)
    assert len(replays) == acking.timed_out == acking.replayed > 0
    assert {replay.reason for replay in replays} == {"timed out"}
    # Between one and two timeouts, and the way of the second attempt.
    assert TIMEOUT_NS < acking.latency_max_ns < 12 * TIMEOUT_NS


def test_what_a_dead_task_had_in_memory_is_gone_and_who_lives_counts_twice() -> None:
    """Counts per key: the dead task begins at 0; its live neighbour counts the records that are sent again twice."""
    results = at_once()
    job = Job("counts", parallelism=2)
    numbers = job.source(SequenceSource(0, 40, splits=2), name="numbers")
    first = numbers.key_by(lambda number: number % 2).map(lambda number: (number % 2, 1), name="relay")
    counts = first.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    counts.sink(CollectSink(results), name="sink")
    kill_ns = 15 * US
    result, acking = run_acked(job, kills=[("count", kill_ns)])

    assert result.state == "finished"
    last = dict(results.records)
    assert acking.replayed > 0
    assert all(count < 20 for count in last.values()), last
    survived, acking = run_acked(_relay_dies(results := at_once()), kills=[("relay", kill_ns)])
    assert survived.state == "finished"
    assert sum(dict(results.records).values()) > 40


def _relay_dies(results: CollectedResults) -> Job:
    job = Job("counts", parallelism=1)
    numbers = job.source(SequenceSource(0, 40), name="numbers")
    # The first channel brings a record to the count at once, the second through a task that dies: both are one tree.
    direct = numbers.rebalance().map(lambda number: (number % 2, 1), name="direct")
    numbers.rebalance().map(lambda number: (number % 2, 0), name="relay").rebalance().sink(CollectSink(at_once()))
    counts = direct.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    counts.sink(CollectSink(results), name="sink")
    return job


def test_a_source_that_dies_goes_on_at_its_committed_offsets() -> None:
    """It reads the records that were not committed again, and no others; commits come once in an interval."""
    def read_again(interval_ns: int) -> int:
        results = at_once()
        config = acking_config(checkpoint_interval=CheckpointInterval(time_ns=interval_ns))
        result, _ = run_acked(pipeline(results, 100), config, kills=[("numbers[0]", 40 * US)])
        assert result.state == "finished"
        assert not expected(100) - Counter(results.records)
        return result.source_records - 100

    often, never = read_again(1 * US), read_again(1_000 * MS)
    # Five records are on their way at a time, and one more between two commits.
    assert 4 <= often <= 7
    assert never == 40


def test_offsets_are_committed_up_to_the_lowest_record_that_is_not_acknowledged() -> None:
    """A lost record holds back its split, so every later record of the split is read again after a restart."""
    files = MemoryFileSystem()
    results = at_once()
    job = pipeline(results, 40, parallelism=1, splits=1)
    # The lost records wait for their timeout, and the source dies before it.
    result, acking = run_acked(job, kills=[("tens", 10 * US), ("numbers", 300 * US)], storage=storage_on(files))

    assert result.state == "finished"
    assert not expected(40) - Counter(results.records)
    assert acking.replayed == 0
    assert result.source_records - 40 >= 30


def test_an_acker_that_dies_loses_its_roots_and_they_are_sent_again() -> None:
    """Every root that it tracked times out at its source, although all records were handled."""
    results = at_once()
    result, acking = run_acked(pipeline(results), acking_config(ackers=1), kills=[("acker[0]", 12 * US)])

    assert result.state == "finished"
    assert result.attempts == 1
    got = Counter(results.records)
    assert not expected() - got
    assert sum((got - expected()).values()) == acking.replayed > 0
    assert acking.lost == 0
    assert acking.lost_messages > 0
    assert "acker[0] was killed" in result.notes


def test_an_acker_that_comes_back_at_once_has_forgotten_everything() -> None:
    """No message is lost, and still no root that it tracked is ever completed."""
    kills = [("acker[0]", 12 * US + US // 2)]
    result, acking = run_acked(pipeline(at_once()), acking_config(ackers=1, recovery_ns=0), kills=kills)

    assert result.state == "finished"
    assert acking.lost_messages == 0
    assert acking.replayed > 0
    assert acking.tracked == 20 + acking.replayed


def test_what_state_emits_is_anchored_to_nothing() -> None:
    """A window ends after its last record: its output needs no acknowledgement, and no root waits for it."""
    results = at_once()
    job = Job("windows")
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_interval_ns(1 * US)
    numbers = job.source(CollectionSource(list(range(12))), name="numbers", watermarks=strategy)
    windows = numbers.key_by(lambda number: number % 2).window(TumblingEventTimeWindows(4))
    windows.reduce(lambda a, b: a + b, name="sum").rebalance().sink(CollectSink(results), name="out")
    result, acking = run_acked(job)

    assert result.state == "finished"
    assert len(results.records) == 6
    assert acking.data == 12 + 6
    assert acking.control == {"init": 12, "ack": 12, "fail": 0, "reset": 0, "reply": 12}


class Echoing(Operator):
    """Emits each record again a little later, by a timer, while its root is still pending."""

    def __init__(self) -> None:
        self._said: list[int] = []

    def process_batch(self, batch: Batch) -> None:
        self._said += batch.values
        self.context.register_processing_timer_ns(self.context.processing_time_ns() + US // 2)
        self.output.emit(batch)

    def on_processing_time_ns(self, time_ns: int) -> None:
        said, self._said = self._said, []
        self.output.emit(Batch([-number - 1 for number in said]))


def test_what_the_chain_of_a_source_emits_later_belongs_to_no_record() -> None:
    """Its edge was in no INIT: if it were anchored to the last record, that record would never be complete."""
    results = at_once()
    job = Job("echo")
    numbers = job.source(SequenceSource(0, 5), name="numbers").via(Echoing, name="echo")
    numbers.rebalance().sink(CollectSink(results), name="sink")
    result, acking = run_acked(job)

    assert result.state == "finished"
    assert sorted(results.records) == [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4]
    assert (acking.completed, acking.timed_out, acking.replayed) == (5, 0, 0)
    assert acking.control["ack"] == 5


def test_the_job_manager_dies_and_all_sources_go_on_at_their_committed_offsets() -> None:
    """All tasks are deployed anew; there is no checkpoint to go back to."""
    results = at_once()
    result, _ = run_acked(pipeline(results, 60), kills=[("job manager", 20 * US)])

    assert result.state == "finished"
    assert [restore.tasks for restore in result.restores] == [None, None]
    assert not expected(60) - Counter(results.records)
    assert 60 < result.source_records < 60 + 40


def test_a_source_holds_back_when_too_much_of_it_is_unacknowledged() -> None:
    """The number of pending records never exceeds the limit, and the job takes correspondingly longer."""
    results = at_once()
    job = pipeline(results, 20, parallelism=1, splits=1)
    result, acking = run_acked(job, acking_config(max_pending=2))
    free, unbounded = run_acked(pipeline(at_once(), 20, parallelism=1, splits=1))

    assert result.state == free.state == "finished"
    assert Counter(results.records) == expected()
    assert acking.max_pending == 2
    assert unbounded.max_pending > 2
    # Two records at a time, 5 µs to their acknowledgement.
    assert result.ended_ns - result.started_ns > 20 / 2 * 5 * US > free.ended_ns - free.started_ns


def test_without_ackers_nothing_is_tracked_and_what_is_lost_stays_lost() -> None:
    """A record counts as acknowledged when it is emitted: at most once."""
    results = at_once()
    result, acking = run_acked(pipeline(results), acking_config(ackers=0), kills=[("ones[0]", 8 * US)])

    assert result.state == "finished"
    assert sum(acking.control.values()) == acking.tracked == acking.replayed == 0
    assert acking.completed == 20
    got = Counter(results.records)
    assert sum((expected() - got).values()) == acking.lost > 0
    assert not got - expected()


def test_without_timeouts_a_lost_record_is_an_error_and_no_silence() -> None:
    """When no event is left, the job fails and says why it does not end."""
    config = acking_config(timeout_ns=None)
    undisturbed, _ = run_acked(pipeline(at_once()), config)
    result, _ = run_acked(pipeline(at_once()), config, kills=[("ones[0]", 8 * US)])

    assert undisturbed.state == "finished"
    assert result.state == "failed"
    assert result.error is not None
    assert isinstance(result.error.__cause__, UnacknowledgedError)


def test_a_timeout_shorter_than_the_way_of_a_record_ends_in_an_error() -> None:
    """Every record would be sent again for ever."""
    result, _ = run_acked(pipeline(at_once()), acking_config(timeout_ns=1 * US, max_replays=5))

    assert result.state == "failed"
    assert result.attempts == 1
    assert result.error is not None
    assert isinstance(result.error.__cause__, ReplayLimitError)
    assert "timeout_ns must be longer" in str(result.error)


def test_what_has_to_be_sent_again_does_not_wait_for_a_source_that_pauses() -> None:
    """A source without new records sends pending ones again when their timeout is over."""
    results = at_once()
    job = Job("pause")
    numbers = job.source(CollectionSource([1, 2, Pause(1_000), 3]), name="numbers")
    numbers.rebalance().map(lambda number: number, name="same").rebalance().sink(CollectSink(results), name="sink")
    trace = Trace()
    result, _ = run_acked(job, kills=[("same", 2 * US)], instruments=(trace,))

    assert result.state == "finished"
    assert not Counter([1, 2, 3]) - Counter(results.records)
    replays = trace.of(RecordReplayed)
    assert replays
    assert all(replay.time_ns - result.started_ns < 100 * MS for replay in replays)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_run_goes_on_where_the_last_one_has_committed(parallelism: int) -> None:
    """With only the durable offsets, at any parallelism, no record is missing in both outputs together."""
    files = MemoryFileSystem()
    results = at_once()
    config = acking_config(restart=NoRestart())
    failed, _ = run_acked(pipeline(results, 60), config, kills=[("ones[1]", 30 * US)], storage=storage_on(files))
    assert failed.state == "failed"
    before = Counter(results.records)

    again, files = at_once(), files.survivors()
    job = pipeline(again, 60, parallelism=parallelism)
    resumed, _ = run_acked(job, storage=storage_on(files), restore=True, incarnation=2)
    assert resumed.state == "finished"
    assert not expected(60) - before - Counter(again.records)
    assert 0 < resumed.source_records < 60

    job = pipeline(nothing := at_once(), 60, parallelism=parallelism)
    over, _ = run_acked(job, storage=storage_on(files.survivors()), restore=True, incarnation=3)
    assert over.state == "finished"
    assert over.source_records == len(nothing.records) == 0


def test_offsets_that_are_damaged_are_an_error() -> None:
    """Without them the job would silently begin again."""
    files = MemoryFileSystem()
    run_acked(pipeline(at_once()), storage=storage_on(files))
    path = f"{storage_on(files).job_dir}/{OFFSETS_FILE_NAME}"
    files.truncate(path, files.size(path) - 1)

    with pytest.raises(StorageError, match="committed offsets cannot be read"):
        run_acked(pipeline(at_once()), storage=storage_on(files), restore=True, incarnation=2)


def test_a_sink_that_collects_transactions_shows_what_it_has_at_once() -> None:
    """There is no checkpoint that it could wait for; after the crash of the sink no record is missing."""
    results = CollectedResults()
    result, _ = run_acked(pipeline(results), kills=[("sink", 9 * US)])

    assert result.state == "finished"
    assert not expected() - Counter(results.records)


def test_a_sink_that_holds_rows_back_is_refused() -> None:
    """Acknowledged rows that it holds back would be lost with its task."""
    job = Job("files")
    job.source(SequenceSource(0, 5)).sink(FileSink("out"), name="rows")

    with pytest.raises(ConfigurationError, match="sink 'rows' holds rows back until a checkpoint completes"):
        Execution(job.plan(), acking_config())


def test_who_commits_need_not_be_the_last_to_be_refused() -> None:
    """The writers of a table are followed by the partition committer, which waits for no notification."""
    job = Job("table")
    rows = job.source(SequenceSource(0, 5)).map(lambda number: {"day": str(number % 2), "number": number})
    rows.sink(PartitionedFileSink("out", partition_by=("day",), commit=PartitionCommit()), name="rows")

    with pytest.raises(ConfigurationError, match="sink 'rows' holds rows back until a checkpoint completes"):
        Execution(job.plan(), acking_config())


def test_a_sink_that_gathers_rows_writes_them_before_they_count_as_handled() -> None:
    """No checkpoint comes that would make it write, and rows that it holds would be lost with it."""
    sink = UpsertSink(MemoryDatabase(), "rows", {"key": "BIGINT"}, key=("key",), row=lambda number: (number,))
    job = Job("upserts")
    job.source(SequenceSource(0, 30, splits=2)).rebalance().sink(sink, name="rows", parallelism=1)
    result, acking = run_acked(job, kills=[("rows", 20 * US)])

    assert result.state == "finished"
    assert acking.replayed > 0
    assert sink.committed_rows() == sorted(f"({number},)" for number in range(30))


def test_offsets_that_could_not_be_written_are_written_with_the_next_commit() -> None:
    """Also when no record has been acknowledged since: at the end, for example."""
    files = MemoryFileSystem()
    rule = FaultRule(FileFault.ERROR_BEFORE, "rename", f"*/{OFFSETS_FILE_NAME}", at_call=1)
    storage = CheckpointStorage(FaultInjectingFileSystem(files, [rule]), "/checkpoints", "pipeline")
    config = acking_config(restart=NoRestart(), checkpoint_interval=CheckpointInterval(records=20))
    job = pipeline(at_once(), parallelism=1, splits=1)
    result, acking = run_acked(job, config, storage=storage)
    assert any("could not be written" in note for note in result.notes)
    assert acking.commits == 1

    job = pipeline(at_once(), parallelism=1, splits=1)
    again, _ = run_acked(job, storage=storage_on(files.survivors()), restore=True, incarnation=2)
    assert again.source_records == 0


def test_an_iteration_is_refused() -> None:
    """A source cannot wait for records that come back to their task: they have no end."""
    job = Job("loop")
    iteration = job.source(SequenceSource(0, 5)).iterate()
    iteration.close_with(iteration.map(lambda number: number - 1).filter(lambda number: number > 0))
    iteration.sink(CollectSink(at_once()))

    with pytest.raises(ConfigurationError, match="job 'loop' has an iteration"):
        Execution(job.plan(), acking_config())


def test_an_operator_with_a_coordinator_is_refused() -> None:
    """Elements that it has handed out to a task that dies would not be handed out again."""
    with pytest.raises(ConfigurationError, match="has a coordinator, which keeps what it has handed out"):
        Execution(dealing(Dealt(20), []).plan(), acking_config())


def test_a_split_that_was_not_read_to_its_end_and_is_gone_is_an_error() -> None:
    """A resumed run does not skip input that was never acknowledged."""
    files = MemoryFileSystem()
    config = acking_config(restart=NoRestart())
    run_acked(pipeline(at_once(), 60, splits=3), config, kills=[("ones[1]", 30 * US)], storage=storage_on(files))
    job = pipeline(at_once(), 60, splits=2)
    resumed, _ = run_acked(job, config, storage=storage_on(files), restore=True, incarnation=2)

    assert resumed.state == "failed"
    assert resumed.error is not None
    assert isinstance(resumed.error.__cause__, JobChangedError)


def test_savepoints_and_ledgers_are_refused() -> None:
    """Each with its reason."""
    plan = pipeline(at_once()).plan()
    with pytest.raises(ConfigurationError, match="mode acking keeps no ledger"):
        Execution(plan, acking_config(), provenance=EffectLedger())
    with pytest.raises(ConfigurationError, match="a savepoint needs a mode that takes snapshots"):
        Execution(plan, acking_config()).savepoint(5 * US, "/saved")


def test_one_seed_is_one_run_to_the_last_message() -> None:
    """Same trace, ids of roots included, again and again; another seed is another run."""
    def digest(seed: str) -> str:
        instrument = TraceDigest()
        run_acked(pipeline(at_once()), acking_config(seed=seed), kills=[("ones[0]", 8 * US)], instruments=(instrument,))
        return instrument.hexdigest()

    assert digest("a") == digest("a") != digest("b")


def test_the_size_of_batches_changes_nothing() -> None:
    """Records are handled one at a time, whatever batch they travel in."""
    outputs = []
    for batch_size in (1, 7, 1_000):
        results = at_once()
        config = acking_config(batch_size=batch_size, channel_capacity=64)
        _, acking = run_acked(pipeline(results), config, kills=[("tens[1]", 7 * US)])
        outputs.append((Counter(results.records), acking.replayed, acking.control))
    assert outputs[0] == outputs[1] == outputs[2]


def test_control_messages_of_barriers_and_of_acking_can_be_compared() -> None:
    """Barriers cost per checkpoint and channel, acknowledgements per record and task."""
    def counts(mode: str, records: int) -> tuple[int, int]:
        counter = MessageCounter()
        interval = CheckpointInterval(time_ns=20 * US)
        config = RunConfig(mode=mode, checkpoint_interval=interval, cost=CostModel(link_latency_ns=1 * US))
        result = Execution(pipeline(at_once(), records).plan(), config, instruments=(counter,)).run()
        messages = message_counts(result, counter)
        if mode == "aligned":
            checkpoints, channels = result.checkpoints.completed, 2 * 2 + 2 * 2 + 2
            assert messages.by_kind["barrier"] == checkpoints * channels
            assert messages.by_kind["trigger"] == checkpoints * 2
            assert messages.by_kind["acknowledge"] == messages.by_kind["notify"] == checkpoints * 7
        return messages.data, messages.control

    assert counts("none", 40) == (120, 0)
    assert counts("acking", 40) == (120, 40 * 5)
    assert counts("acking", 80) == (240, 80 * 5)
    assert counts("aligned", 40)[0] == 120


def test_every_control_message_is_in_the_trace() -> None:
    """With its sender and its receiver."""
    trace = Trace()
    _, acking = run_acked(pipeline(at_once()), acking_config(ackers=1), instruments=(trace,))

    messages = trace.of(AckingMessage)
    assert Counter(message.kind for message in messages) == Counter(
        {kind: count for kind, count in acking.control.items() if count}
    )
    assert {message.receiver for message in messages if message.kind != "reply"} == {"acker[0]"}
    assert {message.sender for message in messages if message.kind == "init"} == {"numbers[0]", "numbers[1]"}
