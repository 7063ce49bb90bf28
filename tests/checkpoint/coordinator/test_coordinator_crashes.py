"""The coordinator dies at any point of any schedule, and a new one goes on from durable state.

Only the world below survives: metadata, files, tasks with their protocols, and messages that are under way. Two
tasks write one private file per snapshot and share files as an incremental backend would: they upload one new file
each time and refer to those of the newest checkpoint they know to be complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings, strategies as st

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.coordinator import (
    Acknowledge,
    ArmTimeout,
    CheckpointCoordinator,
    CompletedCheckpoint,
    CoordinatorConfig,
    CoordinatorInstruction,
    Decline,
    DisarmTimeout,
    DiscardAcknowledgedState,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    DiscardSharedState,
    InitializeLocation,
    JobStatus,
    NotifyAborted,
    NotifyComplete,
    SendTrigger,
    SharedState,
    TaskId,
    WriteMetadata,
)
from engine.checkpoint.coordinator.coordinator_messages import CoordinatorInstructions
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.subtask import NotifyOperatorsComplete, TakeSnapshot, TaskCheckpointProtocol, TaskInstructions
from engine.elements.events import CheckpointBarrier, SnapshotKind
from tests.checkpoint.coordinator.coordinator_driver import GRAPH, SINK, SOURCE, START_NS

TASKS: tuple[TaskId, ...] = (SOURCE, SINK)
IO_ERROR = CheckpointFailureReason.IO_EXCEPTION
FINALIZE_FAILED = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED
TIMEOUT_NS = 100

Message = NotifyComplete | NotifyAborted | CheckpointBarrier


@dataclass
class Durable:
    """One snapshot whose metadata is durable."""

    kind: SnapshotKind
    private: tuple[str, ...]
    shared: tuple[SharedState, ...]

    @property
    def shared_files(self) -> list[object]:
        return [state.handle for state in self.shared]


@dataclass
class Task:
    """One attempt of one task: its protocol, the messages it got, and the files it may refer to."""

    task: TaskId
    attempt: int
    protocol: TaskCheckpointProtocol
    base: tuple[str, ...] = ()
    written: dict[int, tuple[str, ...]] = field(default_factory=dict)
    inbox: list[Message] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)


class World:
    """Everything around the coordinator; see the module."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.durable: dict[int, Durable] = {}
        self.doomed: set[int] = set()
        self.files: Counter[object] = Counter()
        self.in_flight: list[Acknowledge] = []
        self.outstanding: list[CoordinatorInstruction] = []
        self.timeouts: dict[int, int] = {}
        self.triggered: list[int] = []
        self.aborted: set[int] = set()
        self.highest_id = 0
        self.attempt = 0
        self.tasks: list[Task] = []
        self.coordinator = self._new_coordinator()
        self._start_attempt(None)

    def _new_coordinator(self) -> CheckpointCoordinator:
        settings_ = CoordinatorConfig(timeout_ns=TIMEOUT_NS, max_concurrent=2, num_retained=2, tolerable_failures=None)
        return CheckpointCoordinator(GRAPH, settings_)

    # --- instructions ---------------------------------------------------------------------------------------------

    def tell(self, instructions: CoordinatorInstructions) -> None:
        for instruction in instructions:
            self._carry_out(instruction)
        self.coordinator.validate()

    def _carry_out(self, instruction: CoordinatorInstruction) -> None:
        match instruction:
            case InitializeLocation(checkpoint_id):
                # Storage holds at least a trace of every id after a crash.
                self.highest_id = checkpoint_id
                self.outstanding.append(instruction)
            case WriteMetadata() | DiscardPendingCheckpoint():
                self.outstanding.append(instruction)
            case DiscardCheckpoint(checkpoint_id):
                self.doomed.add(checkpoint_id)
                self.outstanding.append(instruction)
            case DiscardSharedState(handles):
                for handle in handles:
                    self.files.pop(handle, None)
            case DiscardAcknowledgedState(ack):
                self._delete_private(ack)
            case ArmTimeout(checkpoint_id, at_ns):
                self.timeouts[checkpoint_id] = at_ns
            case DisarmTimeout(checkpoint_id):
                self.timeouts.pop(checkpoint_id, None)
            case SendTrigger(barrier):
                assert barrier.checkpoint_id > max(self.triggered, default=0), "an id was used twice"
                self.triggered.append(barrier.checkpoint_id)
                for task in self.tasks:
                    task.inbox.append(barrier)
            case NotifyComplete(checkpoint_id):
                assert checkpoint_id in self.durable, "told before it is durable"
                assert checkpoint_id not in self.aborted, "two outcomes"
                for task in self.tasks:
                    task.inbox.append(instruction)
            case NotifyAborted(checkpoint_id):
                assert checkpoint_id not in self.aborted, "aborted twice"
                assert checkpoint_id not in self.durable, "two outcomes"
                self.aborted.add(checkpoint_id)
                for task in self.tasks:
                    task.inbox.append(instruction)

    def _delete_private(self, ack: Acknowledge) -> None:
        assert isinstance(ack.state, str)
        self.files.pop(ack.state, None)
        for handle in ack.discardable_shared:
            self.files.pop(handle, None)

    # --- storage --------------------------------------------------------------------------------------------------

    def _perform(self, work: CoordinatorInstruction) -> None:
        """Do the storage work of an instruction, without telling the coordinator."""
        match work:
            case WriteMetadata(checkpoint_id):
                if checkpoint_id not in self.durable:
                    acks = work.acknowledgements
                    shared = tuple(state for ack in acks for state in ack.shared)
                    self.durable[checkpoint_id] = Durable(work.kind, tuple(str(ack.state) for ack in acks), shared)
            case DiscardCheckpoint(checkpoint_id):
                for name in self.durable.pop(checkpoint_id).private if checkpoint_id in self.durable else ():
                    self.files.pop(name, None)
            case DiscardPendingCheckpoint(_, acknowledgements):
                for ack in acknowledgements:
                    self._delete_private(ack)

    def storage_works(self, position: int, *, fails: bool = False, is_answered: bool = True) -> None:
        """One outstanding piece of work is done, or fails; the answer may never arrive."""
        work = self.outstanding.pop(position)
        if not fails or isinstance(work, (DiscardCheckpoint, DiscardPendingCheckpoint)):
            self._perform(work)
        if is_answered:
            self.answer(work, fails=fails)
        else:
            self.crash()

    def answer(self, work: CoordinatorInstruction, *, fails: bool = False) -> None:
        """Tell the coordinator the outcome of a piece of work."""
        match work:
            case InitializeLocation(id_) if fails:
                self.tell(self.coordinator.on_location_failed(id_, IO_ERROR, self.now_ns))
            case InitializeLocation(id_):
                self.tell(self.coordinator.on_location_ready(id_, self.now_ns))
            case WriteMetadata(id_) if fails:
                self.tell(self.coordinator.on_metadata_failed(id_, FINALIZE_FAILED, self.now_ns))
            case WriteMetadata(id_):
                self.tell(self.coordinator.on_metadata_written(id_, self.now_ns))
            case DiscardCheckpoint(id_) | DiscardPendingCheckpoint(id_):
                self.tell(self.coordinator.on_discarded(id_, self.now_ns))

    # --- crashes and restarts -------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The coordinator is lost, with all its unfinished work; a new one starts from durable state."""
        self.outstanding.clear()
        self.timeouts.clear()
        self._delete_leftovers()
        self.coordinator = self._new_coordinator()
        entries = [
            CompletedCheckpoint(checkpoint_id, snapshot.kind, shared=snapshot.shared)
            for checkpoint_id, snapshot in self.durable.items()
            if snapshot.kind is not SnapshotKind.SAVEPOINT
        ]
        self.tell(self.coordinator.recover(entries, self.now_ns, self.highest_id + 1))
        self._start_attempt(self.coordinator.restore_point())

    def _delete_leftovers(self) -> None:
        """Storage at start: private files that belong to no snapshot are deleted, even if late messages report them."""
        kept = {name for snapshot in self.durable.values() for name in snapshot.private}
        for name in [name for name in self.files if str(name).startswith("private") and name not in kept]:
            del self.files[name]

    def fail_job(self) -> None:
        """A task fails; the coordinator lives on and the job is restored."""
        self.tell(self.coordinator.on_job_failure(self.now_ns))
        self._start_attempt(self.coordinator.restore_point())

    def _start_attempt(self, restored: CompletedCheckpoint | None) -> None:
        self.attempt += 1
        restored_id = None if restored is None else restored.checkpoint_id
        if restored_id is not None:
            assert restored_id not in self.doomed, "the restore point is about to be deleted"
            self._assert_whole(restored_id)
            newest = max(id_ for id_, one in self.durable.items() if one.kind is not SnapshotKind.SAVEPOINT)
            assert restored_id == newest, "not the newest"
        self.tell(self.coordinator.restored(restored_id, self.now_ns, self.attempt))
        self.tell(self.coordinator.start(self.now_ns, self.attempt, restored_id))
        base = {task: tuple[str, ...]() for task in TASKS}
        if restored_id is not None:
            for state in self.durable[restored_id].shared:
                owner = SOURCE if state.key.startswith("source") else SINK
                base[owner] = (*base[owner], state.key)
        self.tasks = [Task(task, self.attempt, TaskCheckpointProtocol(restored_id), base[task]) for task in TASKS]

    # --- tasks ----------------------------------------------------------------------------------------------------

    def take(self, task: Task, message: Message) -> None:
        match message:
            case CheckpointBarrier():
                self._execute(task, task.protocol.on_snapshot_due(message, AlignmentMetrics()))
            case NotifyComplete(checkpoint_id, last_subsumed_id):
                self._execute(task, task.protocol.on_complete(checkpoint_id, last_subsumed_id))
            case NotifyAborted(checkpoint_id, latest_completed_id):
                self._execute(task, task.protocol.on_abort(checkpoint_id, latest_completed_id))
        task.protocol.validate()

    def _execute(self, task: Task, instructions: TaskInstructions) -> None:
        for instruction in instructions:
            match instruction:
                case TakeSnapshot(barrier):
                    self._snapshot(task, barrier)
                case NotifyOperatorsComplete(checkpoint_id):
                    assert checkpoint_id in self.durable or checkpoint_id in self.doomed
                    assert not task.completed or checkpoint_id > task.completed[-1], "complete ids go down"
                    task.completed.append(checkpoint_id)
                    if checkpoint_id in task.written:
                        task.base = task.written[checkpoint_id]

    def _snapshot(self, task: Task, barrier: CheckpointBarrier) -> None:
        checkpoint_id = barrier.checkpoint_id
        name = "source" if task.task == SOURCE else "sink"
        private, uploaded = f"private {name} {checkpoint_id}", f"{name} {checkpoint_id}"
        self.files.update([private])
        shared: tuple[SharedState, ...] = ()
        if barrier.options.kind is not SnapshotKind.SAVEPOINT:
            self.files.update([uploaded])
            # A small state needs only its newest two files.
            kept = task.base[-1:]
            shared = (*(SharedState(key) for key in kept), SharedState(uploaded, uploaded))
            task.written[checkpoint_id] = (*kept, uploaded)
        task.protocol.on_snapshot_written(checkpoint_id)
        self.in_flight.append(Acknowledge(checkpoint_id, task.attempt, task.task, private, shared=shared))

    def acknowledgement_arrives(self, position: int, *, comes_again: bool = False) -> None:
        """From any attempt, possibly again later."""
        ack = self.in_flight[position] if comes_again else self.in_flight.pop(position)
        self.tell(self.coordinator.on_acknowledge(ack, self.now_ns))

    def task_declines(self, checkpoint_id: int) -> None:
        self.tell(self.coordinator.on_decline(Decline(checkpoint_id, self.attempt, SINK, DECLINED), self.now_ns))

    # --- requests and time ----------------------------------------------------------------------------------------

    def somebody_asks(self, what: str) -> None:
        if what == "checkpoint":
            self.tell(self.coordinator.trigger_manual(None, self.now_ns))
        else:
            self.tell(self.coordinator.trigger_savepoint("s", self.now_ns, synchronous=what == "synchronous"))

    def time_passes(self, amount_ns: int) -> None:
        self.now_ns += amount_ns
        for checkpoint_id, at_ns in sorted(self.timeouts.items()):
            if at_ns <= self.now_ns:
                self.timeouts.pop(checkpoint_id, None)
                self.tell(self.coordinator.on_timeout(checkpoint_id, self.now_ns))

    # --- what must hold -------------------------------------------------------------------------------------------

    def _assert_whole(self, checkpoint_id: int) -> None:
        snapshot = self.durable[checkpoint_id]
        missing = [name for name in (*snapshot.private, *snapshot.shared_files) if not self.files[name]]
        assert not missing, f"checkpoint {checkpoint_id} lacks {missing}"

    def retained_snapshots_are_whole(self) -> None:
        """Every file of a retained checkpoint, and of any savepoint, exists."""
        for checkpoint_id, snapshot in self.durable.items():
            is_savepoint = snapshot.kind is SnapshotKind.SAVEPOINT
            if is_savepoint or (checkpoint_id in self.coordinator.retained.ids and checkpoint_id not in self.doomed):
                self._assert_whole(checkpoint_id)

    def what_is_being_written_is_whole(self) -> None:
        """Every file of a checkpoint whose metadata is being written exists."""
        for work in self.outstanding:
            if isinstance(work, WriteMetadata):
                for ack in work.acknowledgements:
                    names = (ack.state, *(state.handle for state in ack.shared))
                    assert all(self.files[name] for name in names), (work.checkpoint_id, names)

    def completed_means_durable(self) -> None:
        """The store holds only checkpoints that a restart would find, and never a savepoint."""
        for checkpoint_id in self.coordinator.retained.ids:
            assert self.durable[checkpoint_id].kind is not SnapshotKind.SAVEPOINT

    def check(self) -> None:
        """All of these, after every event."""
        self.retained_snapshots_are_whole()
        self.what_is_being_written_is_whole()
        self.completed_means_durable()

    def end(self) -> None:
        """In the end the only private files left are those of snapshots and of messages that never arrived."""
        self.tell(self.coordinator.stop(self.now_ns))
        while self.outstanding:
            work = self.outstanding.pop(0)
            self._perform(work)
            self.answer(work)
        self.tell(self.coordinator.shut_down(JobStatus.SUSPENDED, self.now_ns))
        wanted = {name for snapshot in self.durable.values() for name in snapshot.private}
        wanted |= {str(ack.state) for ack in self.in_flight}
        left = {str(name) for name in self.files if str(name).startswith("private")}
        assert left <= wanted, f"nobody deletes {sorted(left - wanted)}"


def next_step(world: World, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    """One event of those that may come now; events that make progress are more frequent than those that undo it."""
    readers = [task for task in world.tasks if task.inbox]
    weights = {
        "storage": 12 if world.outstanding else 0,
        "read": 12 if readers else 0,
        "acknowledge": 12 if world.in_flight else 0,
        "acknowledge and come again": 2 if world.in_flight else 0,
        "ask": 5,
        "time": 1,
        "decline": 1 if world.triggered else 0,
        "fail": 1 if world.coordinator.pending.finalizing_id is None else 0,
        "crash": 1,
        "fail or lose an answer": 1 if world.outstanding else 0,
    }
    match draw(st.sampled_from([name for name, weight in weights.items() for _ in range(weight)])):
        case "storage":
            world.storage_works(draw(st.integers(0, len(world.outstanding) - 1)))
        case "fail or lose an answer":
            position = draw(st.integers(0, len(world.outstanding) - 1))
            world.storage_works(position, fails=draw(st.booleans()), is_answered=draw(st.booleans()))
        case "read":
            task = draw(st.sampled_from(readers))
            # Notifications overtake each other and barriers, barriers keep their order.
            barriers = [one for one in task.inbox if isinstance(one, CheckpointBarrier)]
            others = [one for one in task.inbox if not isinstance(one, CheckpointBarrier)]
            message = draw(st.sampled_from(others + barriers[:1]))
            task.inbox.remove(message)
            world.take(task, message)
        case "acknowledge":
            world.acknowledgement_arrives(draw(st.integers(0, len(world.in_flight) - 1)))
        case "acknowledge and come again":
            world.acknowledgement_arrives(draw(st.integers(0, len(world.in_flight) - 1)), comes_again=True)
        case "ask":
            world.somebody_asks(draw(st.sampled_from(["checkpoint"] * 4 + ["savepoint", "synchronous"])))
        case "time":
            world.time_passes(draw(st.sampled_from([1, 1, 5, 60])))
        case "decline":
            world.task_declines(draw(st.sampled_from(world.triggered[-3:])))
        case "fail":
            world.fail_job()
        case "crash":
            world.crash()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_schedule_with_crashes_keeps_the_promises(data: st.DataObject) -> None:
    """Ids grow and have one outcome, nothing is told before it is durable, operators see complete ids grow, and the
    files of every retained checkpoint and of every savepoint exist at all times."""
    world = World()
    for _ in range(data.draw(st.sampled_from([120, 60, 20]))):
        next_step(world, data.draw)
        world.check()
    world.end()


def test_a_schedule_with_a_crash_at_every_point() -> None:
    """Three checkpoints, cut by a crash after each step in turn: the next one completes, with an id of its own."""
    cut = 0
    while True:
        world = World()
        steps = plain_schedule(world)
        done = sum(1 for _, _ in zip(range(cut), steps, strict=False))
        world.crash()
        seen = list(world.triggered)
        before = dict(world.durable)
        finish_one_checkpoint(world)
        world.check()
        assert world.coordinator.retained.ids[-1] > max(seen, default=0)
        assert set(world.coordinator.retained.ids) <= {*before, world.coordinator.retained.ids[-1]}
        world.end()
        if done < cut:
            break
        cut += 1
    assert cut > 30


def plain_schedule(world: World) -> Iterator[None]:
    """Three checkpoints, one event at a time."""
    for _ in range(3):
        world.somebody_asks("checkpoint")
        yield
        yield from run_dry(world)


def run_dry(world: World) -> Iterator[None]:
    """Do all waiting work, oldest first, one piece at a time; storage works in two steps."""
    while world.outstanding or world.in_flight or any(task.inbox for task in world.tasks):
        for task in world.tasks:
            while task.inbox:
                world.take(task, task.inbox.pop(0))
                yield
        while world.in_flight:
            world.tell(world.coordinator.on_acknowledge(world.in_flight.pop(0), world.now_ns))
            yield
        if world.outstanding:
            work = world.outstanding[0]
            world._perform(work)
            yield
            world.outstanding.remove(work)
            world.answer(work)
            yield


def finish_one_checkpoint(world: World) -> None:
    world.somebody_asks("checkpoint")
    for _ in run_dry(world):
        world.coordinator.validate()
