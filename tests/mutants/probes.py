"""For each mutant of an area: the few calls that go another way while it is switched on.

A probe returns what was observed. It says only that the switch changes what it names; what a search makes of it is
another question (``tests/mutants/ablation.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.checkpoint.barriers import SingleCheckpointHandler
from engine.checkpoint.coordinator import CompletedCheckpoint, SharedState
from engine.checkpoint.coordinator.shared_state_registry import SharedStateRegistry
from engine.elements.batch import Batch
from engine.elements.columns import as_columns
from engine.elements.events import CheckpointBarrier, CheckpointOptions, SnapshotKind, StopMode
from engine.graph.job import Job
from engine.protocols.acking.acker import Acker
from engine.protocols.acking.anchoring import Ack, AnchoredTuple, Init
from engine.protocols.acking.spout_book import SplitProgress, SpoutBook
from engine.protocols.acking.statistics import AckingStatistics
from engine.runtime.acking import AckerTask, bolt
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from operators.basic import CollectedResults, KeyedProcessFunction, KeyedProcessOperator
from operators.columns import ColumnWindowOperator, record_count
from operators.databases import DatabaseError, MemoryDatabase, TableDescription, TransactionName
from operators.files.compaction import CompactionStrategy
from operators.files.sinks import FileSink
from operators.files.sinks.compaction_operators import CompactorOperator
from operators.files.writing import BucketState, OpenPartFence, RecoverableWriter, UniqueNames
from operators.joins import Interval, IntervalJoinOperator, RegularJoinOperator
from operators.sources import SequenceSource
from operators.table.partitions.partition_announcements import PartitionAnnouncements
from operators.table.partitions.partition_commit import PARTITION_TIME, PartitionCommit
from operators.table.partitions.partition_committer import PartitionCommitter
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor
from operators.time.periodic_watermarks import PeriodicWatermarks
from operators.time.watermark_generators import BoundedOutOfOrdernessGenerator
from operators.transactions import END_OF_INPUT, summary
from operators.transactions.committables import committable
from operators.transactions.committer_machine import CommitterMachine
from operators.transactions.global_committer_machine import GlobalCommitterMachine
from operators.windows import EventTimeSessionWindows, TriggeredWindowOperator, TumblingEventTimeWindows, WindowOperator
from state_backends.base import LONG, ReducingStateDescriptor
from state_backends.changelog.history import LogHistory
from state_backends.files import MemoryFileSystem
from state_backends.rows import UploadHistory
from state_backends.snapshots import FileStateHandle, SnapshotOptions, StateScope, run_to_completion
from tests.checkpoint.coordinator.coordinator_driver import (
    SINK,
    SOURCE,
    CoordinatorDriver,
    ack,
    decline,
    driver_of,
    trigger,
)
from tests.checkpoint.coordinator.test_coordinator_shared_state import deliver
from tests.operators.harness import START_NS, Harness
from tests.state_backends.changelog.support import World, again
from tests.state_backends.support import LIST, SUM, heap, location, snapshot_bytes

START_MS = START_NS // 1_000_000


def _first(record: Any) -> Any:
    return record[0]


class _After(KeyedProcessFunction):
    """Each record sets a timer so many ms later."""

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        ctx.register_processing_time_timer(ctx.processing_time_ms() + value[1])
        return ()

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterable[Any]:
        return [(ctx.current_key, ctx.processing_time_ms() - START_MS)]


def restored_timer() -> object:
    """A timer of a checkpoint fires after the restore."""
    before = Harness(KeyedProcessOperator(_After()), key=_first)
    before.process([("a", 5)])
    after = Harness(KeyedProcessOperator(_After()), key=_first, restored=before.snapshot(1))
    after.advance_ms(10)
    return after.take_values()


def earlier_timer() -> object:
    """Of two timers the earlier one was set last."""
    harness = Harness(KeyedProcessOperator(_After()), key=_first)
    harness.process([("a", 50), ("b", 5)])
    harness.advance_ms(60)
    return harness.take_values()


def fired_timer_in_the_log() -> object:
    """A timer that has fired is gone after a restore."""
    world = World()
    backend = world.backend()
    backend.timer_service("t").processing_time.register([1, 2], [None, None], [5, 6])
    backend.timer_service("t").processing_time.pop_next(5)
    return len(again(world, backend).timer_service("t").processing_time)


def grown_session() -> object:
    """A session that has grown before the checkpoint is emitted after the restore."""

    def sessions() -> TriggeredWindowOperator:
        return TriggeredWindowOperator(EventTimeSessionWindows.with_gap(10), None)

    before = Harness(sessions(), key=_first)
    before.process([("a", 1)], [0])
    before.process([("a", 2)], [5])
    after = Harness(sessions(), key=_first, restored=before.snapshot(1))
    after.watermark(100)
    return after.take_values()


def merge_in_the_log() -> object:
    """Elements that a list has taken over from another namespace are there after a restore."""
    world = World()
    backend = world.backend()
    state = backend.list_state(LIST)
    backend.set_current_key(1)
    for namespace in ("a", "b"):
        state.set_namespace(namespace)
        state.add(namespace)
    state.merge_namespaces("a", ["b"])
    back = again(world, backend)
    back.set_current_key(1)
    restored = back.list_state(LIST)
    restored.set_namespace("a")
    return restored.get()


def restored_idleness() -> object:
    """A split that was idle does not hold back the watermark after a restore."""

    def two_splits() -> PeriodicWatermarks:
        periodic = PeriodicWatermarks(lambda: BoundedOutOfOrdernessGenerator(0), 1_000, 1, 0)
        for split in ("busy", "idle"):
            periodic.add_split(split, 0)
        return periodic

    before, after = two_splits(), two_splits()
    for now_ns in (1_000, 3_000_000):
        before.on_records("busy", [now_ns], now_ns)
        before.on_periodic(now_ns)
    after.restore_idleness({split: before.idleness_snapshot(split, 3_000_000) for split in ("busy", "idle")}, 0)
    after.on_records("busy", [7], 0)
    return after.on_periodic(1_000)


def late_after_a_restore() -> object:
    """A record that was late before the failure is late after it."""

    def windows() -> WindowOperator:
        return WindowOperator(TumblingEventTimeWindows.of(10), None)

    before = Harness(windows(), key=_first)
    before.watermark(50)
    after = Harness(windows(), key=_first, restored=before.snapshot(1))
    after.process([("a", 1)], [3])
    return after.counter("numLateRecordsDropped")


HOUR = "day=2020-05-03/hour=01/"


def _committer() -> PartitionCommitter:
    commit = PartitionCommit(PARTITION_TIME, extractor=DefaultPartitionTimeExtractor("$day $hour:00:00"))
    return PartitionCommitter(commit.create_trigger(("day", "hour")))


def pending_partition() -> object:
    """A partition announced before the checkpoint is committed after the restore."""
    before, after = _committer(), _committer()
    before.on_snapshot(1)
    before.on_message(1, 0, 1, [HOUR], 0)
    after.restore(before.on_snapshot(2))
    return after.on_message(END_OF_INPUT, 0, 1, [], 0)


def watermark_of_a_checkpoint() -> object:
    """A partition is not whole because event time has passed it after the checkpoint."""
    committer = _committer()
    committer.on_snapshot(1)
    committer.on_watermark(2**60)
    return committer.on_message(1, 0, 1, [HOUR], 0)


def two_checkpoints_announced() -> object:
    """A completion stands for all checkpoints before it."""
    books = PartitionAnnouncements()
    for checkpoint_id, bucket in enumerate(("a", "b"), start=1):
        books.bucket_created(bucket)
        books.on_snapshot(checkpoint_id)
    return books.on_committed(2)


class _Committing:
    def __init__(self) -> None:
        self.committed: list[Any] = []

    def commit(self, requests: Any) -> None:
        self.committed += [request.committable for request in requests]


def late_notification_after_the_end() -> object:
    """A checkpoint from before the end of the input does not commit files that came with the end."""
    committer = _Committing()
    machine = CommitterMachine(committer)
    for message in (summary(2, 0, 1, 1), committable(2, 0, "rest")):
        machine.add(message)
    machine.end_of_input(checkpoint_follows=True)
    machine.notify(1)
    return committer.committed


def half_a_checkpoint() -> object:
    """One of two subtasks has sent its part."""
    committer = _Committing()
    machine = GlobalCommitterMachine(committer, commit_on_input=True)
    for message in (summary(1, 0, 2, 1), committable(1, 0, "half")):
        machine.add(message)
    return committer.committed


def compaction_of_an_open_checkpoint() -> object:
    """Compaction does not begin before the notification."""
    sink = FileSink("rows").compacting(CompactionStrategy(checkpoints=1))
    harness = Harness(CompactorOperator(sink))
    harness.process([("b", [("pending", "b", "b/.x.inprogress.1", "b/.x", 3)], [])])
    harness.snapshot(1)
    return len(harness.context.timers)


def _file(key: str) -> SharedState:
    return SharedState(key, key)


def file_in_use() -> object:
    """A file that the newest checkpoint refers to stays."""
    registry = SharedStateRegistry()
    registry.register(_file("a"), 1)
    registry.register(SharedState("a"), 2)
    return registry.unregister_unused(2)


def file_out_of_use() -> object:
    """A file that two checkpoints have used goes with the second."""
    registry = SharedStateRegistry()
    registry.register(_file("a"), 1)
    registry.register(SharedState("a"), 2)
    return registry.unregister_unused(3)


def upload_of_an_aborted_checkpoint() -> object:
    """The next completion deletes it."""
    driver = driver_of(tolerable_failures=None)
    trigger(driver)
    deliver(driver, 1, "a")
    decline(driver, 1)
    trigger(driver)
    deliver(driver, 2, "b")
    ack(driver, 2, SINK)
    return driver.log.discarded_shared


def base_of_an_upload() -> object:
    """A checkpoint that is not confirmed is no base."""
    history = UploadHistory()
    history.uploaded(1, {"a": FileStateHandle("shared/a", StateScope.SHARED, 1, 0)})
    return dict(history.base())


def materialised_in_the_middle() -> object:
    """Changes that a materialisation holds are not replayed."""
    world = World()
    backend = world.backend()
    backend.list_state(LIST).add_many([1], ["a"])
    world.checkpoint(backend, 1)
    backend.list_state(LIST).add_many([1], ["b"])
    work = backend.materialize()
    backend.list_state(LIST).add_many([1], ["c"])
    while work is not None and work.step() is not None:
        continue
    return again(world, backend).list_state(LIST).get_many([1])


def log_of_an_unconfirmed_materialisation() -> object:
    """Changes that the newest confirmed materialisation lacks stay in the log."""
    history = LogHistory()
    first = history.sealed(10)
    history.uploaded(first)
    history.begin_materialization()
    history.materialized()
    return history.is_needed(first)


def open_part() -> object:
    """A restored sink writes to a file of its own."""
    files = MemoryFileSystem()
    before = RecoverableWriter(files, "/out", UniqueNames(1, 1, 0), replaces=False)
    stream = before.open("part-0-0")
    stream.write(b"row\n")
    handle = stream.persist()
    after = RecoverableWriter(files, "/out", UniqueNames(1, 2, 0), replaces=False)
    (state,) = OpenPartFence(after, (1, 2), str).fence([BucketState("", [], (*handle, 0))])
    return state.in_progress is not None and state.in_progress[0] == handle[0]


def older_epoch() -> object:
    """The database refuses a subtask that was taken over."""
    description = TableDescription("rows", ("key",), "out")
    database = MemoryDatabase()
    old, new = (database.connect(description, str) for _ in range(2))
    epoch = old.take_over(0, 1)
    new.take_over(0, 1)
    try:
        old.begin(TransactionName("out", 0, epoch, 1, 1, 0))
    except DatabaseError as refused:
        return type(refused).__name__
    return "taken"


def _numbers(records: int = 4) -> Job:
    made = Job("probe", max_parallelism=4)
    made.source(SequenceSource(0, records), name="numbers").collect(CollectedResults(), name="out", chain=False)
    return made


def _execution(job: Job) -> Execution:
    files = MemoryFileSystem()
    return Execution(job.plan(), RunConfig(batch_size=1), file_system=files, output_dir="/out")


def end_of_a_disowned_task() -> object:
    execution = _execution(_numbers())
    execution.begin()
    life = execution.manager.tasks[1, 0].life
    life.disowned = True
    execution.manager.task_reached_end(life)
    return execution.manager.end.fingerprint()


def two_channels_of_one_input() -> object:
    """Both have to deliver the barrier."""
    made = Job("probe", max_parallelism=4)
    numbers = made.source(SequenceSource(0, 4, splits=2), name="numbers", parallelism=2)
    numbers.rebalance().collect(CollectedResults(), name="out", parallelism=1)
    execution = _execution(made)
    execution.begin()
    handler = execution.manager.tasks[1, 0].gate.handler
    assert isinstance(handler, SingleCheckpointHandler)
    return [type(one).__name__ for one in handler.on_barrier(0, CheckpointBarrier(1, 0), 0)]


def interval_join_after_a_restore() -> object:
    """Records from before the checkpoint meet those after it."""

    def join() -> IntervalJoinOperator:
        return IntervalJoinOperator(Interval.of(-2, 2), lambda left, right, ctx: [(left[1], right[1])])

    before = Harness(join(), key=_first)
    before.process([("a", "left")], [1])
    after = Harness(join(), key=_first, restored=before.snapshot(1))
    after.process_2([("a", "right")], [1], _first)
    return after.take_values()


def regular_join_after_a_restore() -> object:
    """A row that comes after the restore takes no place of one from before."""
    before = Harness(RegularJoinOperator(), key=_first)
    before.process([("a", "left 1")])
    after = Harness(RegularJoinOperator(), key=_first, restored=before.snapshot(1))
    after.process([("a", "left 2")])
    after.process_2([("a", "right")], None, _first)
    return after.take_values()


def tree_with_a_child() -> object:
    """A root is complete when its last tuple is handled."""
    acker, parent = Acker(), AnchoredTuple({7: 3})
    acker.receive(Init(7, 3, "spout"))
    parent.out = 5
    return [acker.receive(message) is None for message in bolt.acks_of(parent)]


def timed_out_root() -> object:
    """A root without an answer has failed."""
    book: SpoutBook[str] = SpoutBook("spout")
    book.track("record", 7, 3)
    return [*book.tick(), *book.tick()]


def acknowledged_out_of_order() -> object:
    """The position waits for the oldest record."""
    progress = SplitProgress(0)
    progress.read(1)
    progress.acked(progress.read(2))
    return progress.position


class _Run:
    """The part of its run that an acker needs."""

    hook = None

    def __init__(self) -> None:
        self.statistics = AckingStatistics()
        self.answers: list[Any] = []

    def answer(self, *answer: Any) -> None:
        self.answers.append(answer)

    def next_tick_ns(self) -> None:
        return None


def init_twice() -> object:
    """A message that comes twice completes nothing."""
    run: Any = _Run()
    acker = AckerTask(run, 0, 0)
    for message in (Init(7, 3, "spout"), Ack(7, 1), Init(7, 2, "spout")):
        acker._take(message)
    return len(run.answers)


def _with_savepoint() -> CoordinatorDriver:
    driver = driver_of()
    trigger(driver)
    ack(driver, 1)
    driver.tell(driver.coordinator.trigger_savepoint("wish", driver.now_ns))
    ack(driver, 2)
    return driver


def told_of_a_savepoint() -> object:
    """Tasks hear of checkpoints only."""
    return _with_savepoint().log.completed[SOURCE]


def retained_beside_a_savepoint() -> object:
    """A savepoint is no checkpoint of the job."""
    return _with_savepoint().coordinator.retained.ids


def subsumed_savepoint() -> object:
    """A snapshot that the user owns is never deleted."""
    return CompletedCheckpoint(1, SnapshotKind.SAVEPOINT).may_be_deleted, CompletedCheckpoint(1).may_be_deleted


def input_of_a_suspended_source() -> object:
    """A source that is stopped has not come to its end."""
    execution = _execution(_numbers())
    execution.begin()
    source = execution.manager.tasks[0, 0]
    options = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, stop=StopMode.SUSPEND)
    source.trigger_checkpoint(CheckpointBarrier(1, 0, options))
    return source.end.input_ended


_MANY = 20
"""Records of a batch whose values run."""


def snapshot_of_running_values() -> object:
    """A snapshot has what was added to a key by the records of one batch."""
    backend = heap()
    backend.reducing_state(SUM).add_many([1] * _MANY, [1] * _MANY, [])
    return snapshot_bytes(backend)


def running_value_of_a_new_key() -> object:
    """The second snapshot has a key that the first one did not have."""
    backend = heap()
    state = backend.reducing_state(SUM)
    state.add_many([1] * _MANY, [1] * _MANY, [])
    snapshot_bytes(backend)
    state.add_many([1, 2] * _MANY, [1, 1] * _MANY, [])
    return snapshot_bytes(backend)


def running_list_behind_a_snapshot() -> object:
    """A list goes on to grow while the snapshot is written."""

    def grown(numbers: list[int], number: list[int]) -> list[int]:
        numbers += number
        return numbers

    backend, where = heap(), location(inline_threshold_bytes=1 << 20)
    state = backend.reducing_state(ReducingStateDescriptor("lists", grown))
    state.add_many([1] * _MANY, [[1] for _ in range(_MANY)], [])
    task = backend.async_snapshot(backend.sync_prepare_resources(1), where.stream_factory("s"), SnapshotOptions())
    state.add_many([1] * _MANY, [[1] for _ in range(_MANY)], [])
    handle = run_to_completion(task).job_manager_state
    assert handle is not None
    return where.reader().open(handle.stream).read()


def _column_windows(restored: Any = None) -> Harness:
    kept = ColumnWindowOperator(TumblingEventTimeWindows.of(10), {"n": record_count()}, ("k",), allowed_lateness_ms=50)
    return Harness(kept, key_type=LONG, restored=restored)


def _with_a_record() -> Harness:
    harness = _column_windows()
    harness.operator.process_batch(as_columns(Batch([{"k": 1}], [5], [1])))
    return harness


def waiting_record_after_a_restore() -> object:
    """A window of a checkpoint ends after the restore."""
    after = _column_windows(_with_a_record().snapshot(1))
    after.watermark(20)
    return after.take_values()


def kept_window_after_a_restore() -> object:
    """A window that has fired is kept for late records, and is restored."""
    before = _with_a_record()
    before.watermark(20)
    after = _column_windows(before.snapshot(1))
    after.watermark(30)
    return after.take_values()
