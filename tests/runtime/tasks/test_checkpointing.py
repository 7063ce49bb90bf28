"""Checkpoints of a running job: the order of steps, channels blocked by alignment, intervals, the last checkpoint."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.coordinator import Acknowledge, CheckpointStatus
from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointType
from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import (
    AttemptStarted,
    ChannelBlocked,
    ChannelResumed,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointCut,
    CheckpointTriggered,
    Receive,
    Send,
    SnapshotAcknowledged,
    SnapshotTaken,
    TaskState,
    TraceEvent,
)
from engine.runtime.config import CostModel
from engine.runtime.execution import Execution
from engine.runtime.job import JobManager
from engine.runtime.kernel import START_NS
from engine.runtime.tasks import Task
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.runtime.support import (
    BASE_DIR,
    US,
    RecordingSink,
    Trace,
    checked,
    every,
    execution,
    expected_counts,
    files_below,
    run,
    running_count,
    storage_in,
)


class Witness(Operator):
    """Passes records on, emits one more in each hook of a snapshot, and logs each call."""

    log: list[Any]

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(Batch(batch.values, batch.timestamps))

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        self.log.append("pre-barrier hook")
        self.output.emit(Batch([f"before {checkpoint_id}"]))

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.log.append("state captured")


def witness_log() -> list[Any]:
    """The log of a job with a witness in the middle, around its first checkpoint."""
    log: list[Any] = []

    def make() -> Operator:
        operator = Witness()
        operator.log = log
        return operator

    def instrument(event: TraceEvent) -> None:
        if isinstance(event, Send) and event.channel == 1:
            log.append("barrier sent" if event.kind == "CheckpointBarrier" else event.kind)

    job = Job("order").source(SequenceSource(0, 10), name="numbers")
    job.rebalance().via(make, name="witness").collect([], chain=False)
    run(job._job, instruments=[instrument], batch_size=5, checkpoint_interval=every(ns=7 * US))
    start = log.index("pre-barrier hook")
    return log[start : start + 4]


def test_the_steps_of_a_snapshot_come_in_order() -> None:
    """Pre-barrier hook with its records, then the barrier on the outputs, then the state."""
    assert witness_log() == ["pre-barrier hook", "records", "barrier sent", "state captured"]


def snapshot_files(files: MemoryFileSystem) -> list[str]:
    """Every file in storage except the one that stores which ids are used up."""
    return [path for path in files_below(files) if not path.endswith("/checkpoint-ids")]


def two_inputs(into: Any, records: int = 60) -> Job:
    """Two sources of one count; one of them has a slow link."""
    job = Job("inputs")
    fast = job.source(SequenceSource(0, records), name="fast")
    slow = job.source(SequenceSource(0, records), name="slow")
    pairs = fast.union(slow).key_by(lambda number: number % 2, value=lambda number: (number % 2, 1))
    return pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count").collect(into, name="out")


SLOW_LINK = CostModel(slow_links={"slow": 8 * US})


def test_alignment_blocks_a_channel_behind_its_barrier() -> None:
    """Between its barrier and the snapshot a channel yields no element; then it goes on."""
    trace = Trace()

    run(two_inputs([]), instruments=[trace], batch_size=1, checkpoint_interval=every(ns=20 * US), cost=SLOW_LINK)

    blocked_at: dict[int, int] = {}
    spans = 0
    for event in trace.events:
        if isinstance(event, ChannelBlocked):
            blocked_at[event.channel] = event.time_ns
        elif isinstance(event, ChannelResumed):
            spans += event.time_ns - blocked_at.pop(event.channel) == 8 * US
        elif isinstance(event, Receive):
            assert event.channel not in blocked_at, "a blocked channel yielded an element"
    assert spans >= 2


@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_every_checkpoint_is_a_consistent_cut(batch_size: int) -> None:
    """With aligned barriers each channel's counters agree on both sides, for slow links as well."""
    oracle, trace = CutOracle(), Trace()

    run(
        two_inputs([]),
        instruments=[oracle, trace],
        batch_size=batch_size,
        channel_capacity=1_000,
        checkpoint_interval=every(ns=13 * US),
        cost=SLOW_LINK,
    )

    assert len(oracle.verdicts) >= 4
    assert oracle.held
    assert all(cut.channels == 2 for cut in trace.of(CheckpointCut))
    assert [cut.records_sent for cut in trace.of(CheckpointCut)][:3] == [26, 52, 78]


def test_alignment_is_measured() -> None:
    """Start delay and alignment duration match the times of the barriers."""
    trace = Trace()

    run(two_inputs([]), instruments=[trace], batch_size=1, checkpoint_interval=every(ns=20 * US), cost=SLOW_LINK)

    # After the end of the fast source its channel takes no part any more.
    ended = min(one.time_ns for one in trace.of(TaskState) if one.state == "finished")
    counts = [one for one in trace.of(SnapshotTaken) if one.task.endswith("out[0]") and one.time_ns < ended]
    assert {(one.start_delay_ns, one.alignment_ns) for one in counts} == {(0, 8 * US)}


def test_metadata_is_durable_before_anyone_commits() -> None:
    """When a sink hears that a checkpoint is complete, no crash can undo the checkpoint."""
    files, sink = MemoryFileSystem(), RecordingSink()
    survived: dict[int, bool] = {}

    def crash_now(checkpoint_id: int) -> None:
        path = f"{BASE_DIR}/durable/chk-{checkpoint_id}/_metadata"
        survived[checkpoint_id] = files.exists(path)

    sink.at_notify = crash_now
    job = Job("durable").source(SequenceSource(0, 50)).sink(sink)

    run(job, file_system=files, checkpoint_interval=every(ns=10 * US), retained=100, batch_size=4)
    files.crash()

    completed = sink.of("complete")
    assert len(completed) >= 5
    assert all(survived[checkpoint_id] for checkpoint_id in completed)
    assert storage_in(files, "durable").list_checkpoints() == completed


def test_sinks_hear_of_checkpoints_in_order_and_after_their_snapshot() -> None:
    """``snapshot`` comes before ``complete`` of the same checkpoint, and ids only grow."""
    sink = RecordingSink()

    run(Job("calls").source(SequenceSource(0, 50)).sink(sink), checkpoint_interval=every(ns=10 * US), batch_size=4)

    calls = [(what, argument) for _, what, argument in sink.calls if what in ("snapshot", "complete")]
    ids = sink.of("complete")
    assert ids == sorted(set(ids)) == sink.of("snapshot")
    assert all(calls.index(("snapshot", one)) < calls.index(("complete", one)) for one in ids)
    assert [what for _, what, _ in sink.calls][-3:] == ["snapshot", "complete", "close"]


@pytest.mark.parametrize(("mode", "timeout_ns"), [("aligned", None), ("aligned-timeout", 80 * US)])
def test_checkpoints_back_to_back_do_not_seem_to_take_longer_and_longer(mode: str, timeout_ns: int | None) -> None:
    """Each takes as long from its trigger as the first, within its timeouts."""
    job = Job("back to back", parallelism=2)
    numbers = job.source(SequenceSource(0, 2_000, splits=2), name="numbers").key_by(lambda number: number % 7)
    numbers.reduce(lambda left, right: left + right, name="sum").collect(CollectedResults())

    ran = run(
        job,
        mode=mode,
        aligned_timeout_ns=timeout_ns,
        batch_size=8,
        checkpoint_interval=every(ns=20 * US),
        checkpoint_timeout_ns=300 * US,
        inline_state_bytes=0,
        cost=CostModel(source_record_ns=1 * US, storage_latency_ns=50 * US),
    )

    rows = ran.checkpoints.rows()[:10]
    waits = [row.triggered_at_ns - row.requested_at_ns for row in rows]
    assert waits == sorted(set(waits))
    assert waits[-1] > 300 * US
    assert {row.end_to_end_ns for row in rows} == {rows[0].end_to_end_ns}
    assert {(row.type, row.status) for row in rows} == {(CheckpointType.CHECKPOINT, CheckpointStatus.COMPLETED)}


@pytest.mark.parametrize("batch_size", [1, 7, 1_000])
def test_an_interval_in_records_counts_all_sources_records(batch_size: int) -> None:
    """Every n records of a single source a checkpoint cuts exactly there."""
    trace = Trace()
    job = Job("by-records").source(SequenceSource(0, 100)).rebalance().collect([], parallelism=2)

    run(job, instruments=[trace], batch_size=batch_size, checkpoint_interval=every(records=30))

    assert [cut.records_sent for cut in trace.of(CheckpointCut)] == [30, 60, 90, 100]


def test_the_interval_in_records_begins_anew_with_each_attempt() -> None:
    """After a restart the next checkpoint comes a whole interval after the restored one."""
    trace = Trace()
    job = Job("by-records").source(SequenceSource(0, 100), name="numbers").rebalance().collect([], parallelism=2)

    run(job, instruments=[trace], batch_size=8, checkpoint_interval=every(records=30), kills=[("numbers", 50 * US)])

    second = [cut.records_sent for cut in trace.of(CheckpointCut) if cut.attempt == 2]
    assert [one.restored_checkpoint for one in trace.of(AttemptStarted)] == [None, 1]
    assert second == [30, 60, 70]


def test_without_an_interval_only_the_last_checkpoint_is_taken() -> None:
    """A bounded job ends with one checkpoint, which commits everything."""
    results = CollectedResults()

    result = run(running_count(Job("last"), 50, results), checkpoint_interval=None)

    assert result.checkpoints.completed == result.checkpoints.triggered == 1
    assert Counter(results.records) == expected_counts(50)


def test_mode_none_takes_no_checkpoints_and_publishes_at_the_end() -> None:
    """Without a protocol no file is written and no barrier sent; the sink publishes when it finishes."""
    results, files, trace = CollectedResults(), MemoryFileSystem(), Trace()

    result = run(
        running_count(Job("plain"), 50, results),
        mode="none",
        file_system=files,
        instruments=[trace],
        checkpoint_interval=every(ns=5 * US),
    )

    assert result.checkpoints.triggered == 0
    assert files_below(files) == {}
    assert all(send.kind != "CheckpointBarrier" for send in trace.of(Send))
    assert Counter(results.records) == expected_counts(50)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_last_commit_is_never_lost(parallelism: int) -> None:
    """In no order of events within the last instant does a task end before it has heard of the last checkpoint."""
    for seed in range(400):
        results = CollectedResults()
        job = Job("end").source(SequenceSource(0, 10), parallelism=parallelism)
        job.rebalance().collect(results, parallelism=1, chain=False)

        run(job._job, seed=str(seed), batch_size=10, checkpoint_interval=None)

        assert sorted(results.records) == list(range(10)), f"seed {seed}"


@pytest.mark.parametrize("latency_us", [0, 40])
def test_no_checkpoint_begins_behind_the_last_one(latency_us: int) -> None:
    """Once the last checkpoint is complete the coordinator stops: none is triggered while the tasks end."""
    for seed in range(20):
        trace = Trace()
        result = run(
            running_count(Job("end", parallelism=2), 50, []),
            instruments=[trace],
            seed=str(seed),
            checkpoint_interval=every(ns=10 * US),
            cost=CostModel(link_latency_ns=latency_us * US),
            max_concurrent=3,
            checkpoints_after_tasks_finish=False,
        )

        kinds = (CheckpointTriggered, CheckpointCompleted, TaskState)
        told = [event for event in trace.events if isinstance(event, kinds)]
        first_end = next(at for at, event in enumerate(told) if getattr(event, "state", "") == "finished")
        assert not any(isinstance(event, CheckpointTriggered) for event in told[first_end:]), f"seed {seed}"
        assert result.checkpoints.in_progress == 0
        aborted = trace.of(CheckpointAborted)
        assert {one.reason for one in aborted} <= {"CHECKPOINT_COORDINATOR_SUSPEND", "CHECKPOINT_SUBSUMED"}


class LateRequest:
    """Asks for a periodic checkpoint at its instant, but after some other events of it."""

    name = "late request"

    def __init__(self, manager: JobManager, events_before: int) -> None:
        self._manager = manager
        self._events_before = events_before

    def strike(self, _payload: object) -> None:
        """Ask, or wait for one more event."""
        kernel = self._manager.kernel
        self._events_before -= 1
        if self._events_before:
            kernel.schedule(kernel.now_ns, "strike", self)
        else:
            kernel.schedule(kernel.now_ns, "records_interval_over", self._manager, 1)


def delay_acknowledgement(made: Execution, checkpoint_id: int, by_ns: int) -> None:
    """Delay the first acknowledgement of a checkpoint."""
    manager, delayed = made.manager, []
    receive_at_once = manager.receive_acknowledge

    def receive(message: Acknowledge) -> None:
        if message.checkpoint_id == checkpoint_id and not delayed:
            delayed.append(message)
            made.kernel.schedule(made.kernel.now_ns + by_ns, "receive_acknowledge", manager, message)
        else:
            receive_at_once(message)

    manager.receive_acknowledge = receive  # type: ignore[method-assign]


def test_a_last_checkpoint_that_was_subsumed_is_not_repeated() -> None:
    """A later checkpoint that completes before the last one also began after the end, so the job ends."""
    for seed in range(20):
        results, trace = CollectedResults(), Trace()
        made = execution(
            two_inputs(results, 12),
            seed=str(seed),
            instruments=[trace],
            batch_size=12,
            checkpoint_interval=None,
            max_concurrent=2,
            cost=CostModel(slow_links={"slow": 3 * US}),
        )
        delay_acknowledgement(made, 1, 9 * US)
        # The instant at which the input has ended.
        made.kernel.schedule(START_NS + 27 * US, "strike", LateRequest(made.manager, 5))
        result = checked(made).raise_on_failure()

        assert [one.reason for one in trace.of(CheckpointAborted)] == ["CHECKPOINT_SUBSUMED"], f"seed {seed}"
        assert len(results.records) == 24
        assert result.ended_ns - START_NS < 1_000 * US, "another last checkpoint was taken later"


def delay_notifications(made: Execution, task_name: str, by_ns: int) -> None:
    """Delay what the coordinator tells one task about finished checkpoints."""
    mail_at_once = made.manager.post.to_task

    def mail(task: Task, operation: str, *arguments: object) -> None:
        if task.name == task_name and operation.startswith("notify_"):
            made.kernel.schedule(made.kernel.now_ns + by_ns, "receive_mail", task, (operation, arguments))
        else:
            mail_at_once(task, operation, *arguments)

    made.manager.post.to_task = mail  # type: ignore[method-assign]


def test_a_task_ends_when_it_has_heard_of_the_last_checkpoint() -> None:
    """A notification that comes later than the ends of all inputs still makes the sink commit."""
    results = CollectedResults()
    job = Job("late").source(SequenceSource(0, 10), name="numbers").collect(results, name="out", chain=False)
    made = execution(job, checkpoint_interval=None)
    delay_notifications(made, "out[0]", 5 * US)

    result = made.run().raise_on_failure()

    assert results.records == list(range(10))
    assert {task.state for task in result.tasks} == {"finished"}


def test_a_finished_task_leaves_no_snapshot_behind() -> None:
    """A snapshot that is still being written when its task ends is cancelled, and its files are deleted."""
    files, trace = MemoryFileSystem(), Trace()
    job = Job("finished").source(SequenceSource(0, 40), name="numbers").collect([], name="out", chain=False)
    made = execution(
        job,
        file_system=files,
        instruments=[trace],
        inline_state_bytes=0,
        checkpoint_interval=every(ns=3 * US),
        retained=1,
        max_concurrent=2,
        cost=CostModel(storage_latency_ns=10 * US),
        checkpoints_after_tasks_finish=False,
    )
    delay_notifications(made, "out[0]", 2 * US)

    made.run().raise_on_failure()
    taken = {one.checkpoint_id for one in trace.of(SnapshotTaken) if one.task == "out[0]"}
    acknowledged = {one.checkpoint_id for one in trace.of(SnapshotAcknowledged) if one.task == "out[0]"}
    made.kernel.run()

    assert taken - acknowledged, "no snapshot was under way at the end: this test tested nothing"
    assert {one.checkpoint_id for one in trace.of(SnapshotAcknowledged) if one.task == "out[0]"} == acknowledged
    newest = max(one.checkpoint_id for one in trace.of(CheckpointCompleted))
    assert all(f"/chk-{newest}/" in path for path in snapshot_files(files))


def test_storage_takes_virtual_time() -> None:
    """A snapshot is acknowledged when its bytes are written; meanwhile the job goes on."""
    trace = Trace()

    run(
        running_count(Job("slow-storage"), 200, []),
        instruments=[trace],
        batch_size=10,
        checkpoint_interval=every(ns=100 * US),
        cost=CostModel(storage_latency_ns=25 * US),
        inline_state_bytes=0,
    )

    taken = {(one.checkpoint_id, one.task): one.time_ns for one in trace.of(SnapshotTaken)}
    waited = {one.time_ns - taken[one.checkpoint_id, one.task] for one in trace.of(SnapshotAcknowledged)}
    assert min(waited) >= 25 * US
    first = trace.of(SnapshotTaken)[0].time_ns
    assert any(first < send.time_ns < first + 25 * US for send in trace.of(Send) if send.records)


def test_copy_on_write_holds_while_the_job_goes_on() -> None:
    """Slow snapshots hold the state at the barrier, without the changes that the job has made since."""
    results = CollectedResults()
    cost = CostModel(storage_latency_ns=30 * US)

    result = run(
        running_count(Job("slow-storage"), 300, results, keys=50),
        kills=[("count", 170 * US), ("numbers", 240 * US)],
        batch_size=4,
        checkpoint_interval=every(ns=40 * US),
        cost=cost,
        inline_state_bytes=0,
        restart=FixedDelayRestart(3, 5 * US),
    )

    assert result.attempts == 3
    assert any(restore.checkpoint_id for restore in result.restores)
    assert Counter(results.records) == expected_counts(300, 50)


@pytest.mark.parametrize("retained", [1, 2, 5])
def test_only_the_retained_checkpoints_are_kept(retained: int) -> None:
    """Subsumed checkpoints are deleted with all their files, and the files of aborted ones are deleted."""
    files = MemoryFileSystem()
    job = running_count(Job("kept"), 200, [])

    result = run(
        job,
        file_system=files,
        retained=retained,
        checkpoint_interval=every(ns=20 * US),
        kills=[("count", 90 * US)],
        cost=CostModel(storage_latency_ns=7 * US),
        inline_state_bytes=0,
    )

    listed = storage_in(files, "kept").list_checkpoints()
    newest = [row.checkpoint_id for row in result.checkpoints.rows() if row.status.value.lower() == "completed"]
    assert listed == newest[-retained:]
    kept = {f"{BASE_DIR}/kept/chk-{checkpoint_id}" for checkpoint_id in listed}
    assert {path.rsplit("/", 1)[0] for path in snapshot_files(files)} == kept


def test_a_checkpoint_that_takes_too_long_is_given_up() -> None:
    """A checkpoint over its timeout is aborted and its files are deleted; the job goes on when that is tolerated."""
    trace, files, results = Trace(), MemoryFileSystem(), CollectedResults()

    result = run(
        running_count(Job("timeout"), 400, results),
        instruments=[trace],
        file_system=files,
        channel_capacity=10_000,
        batch_size=10,
        checkpoint_interval=every(ns=100 * US),
        checkpoint_timeout_ns=150 * US,
        tolerable_failures=10,
        retained=1,
        # Barriers queue behind more and more records, until the sources have ended.
        cost=CostModel(record_ns=3 * US),
    )

    assert "CHECKPOINT_EXPIRED" in {one.reason for one in trace.of(CheckpointAborted)}
    assert result.checkpoints.completed >= 1
    assert result.attempts == 1
    assert Counter(results.records) == expected_counts(400)
    newest = max(one.checkpoint_id for one in trace.of(CheckpointCompleted))
    assert all(f"/chk-{newest}/" in path for path in snapshot_files(files))
