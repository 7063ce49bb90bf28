"""Tasks in mode ``acking``: bolts, which acknowledge what they have handled, and spouts, which send again.

Rules.

* A record on a channel is a tuple. A task handles one at a time; whatever its chain emits meanwhile is anchored to it,
  in one tuple per receiver. Then it acknowledges it. What the chain emits outside of that (a window that ends, a timer,
  the end of the input) comes from its state: it is anchored to nothing, for what it was made of was acknowledged.
* A source sends one record at a time, whatever the size of batches.
* A source record is a root, with split and number as its message id. It is kept until it is acknowledged. When it has
  failed or timed out, the same record is sent again, under a new root, ahead of new ones.
* A source has come to its end when all records were read and acknowledged. Only then is event time at its end, too;
  until then it goes on as if nothing was ever sent again, so that a replay may be late for its window.
* Nothing of this costs a record anything in other modes: these tasks, their receivers and their routers are built in
  their stead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from engine.elements.batch import Batch
from engine.observe.events import RecordReplayed
from engine.protocols.acking.anchoring import UNTRACKED, AnchoredTuple, acks_of, child_of
from engine.protocols.acking.ids import IdStream
from engine.protocols.acking.progress import SplitProgress
from engine.protocols.acking.spout import ACKED, FAILED, Outcome, SpoutBook
from engine.runtime.acked_channel import AckedChannel
from engine.runtime.acking import AckingRun, ReplayLimitError
from engine.runtime.outputs import ChainOutput
from engine.runtime.source_task import SourceTask
from engine.runtime.task import CANCELED, Task
from engine.runtime.task import FAILED as TASK_FAILED
from engine.runtime.watched import TracedBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.graph.partitioner import Routed, Router
    from engine.graph.plan import SubtaskPlan, VertexPlan
    from engine.protocols.acking.messages import AckerMessage, Reply
    from engine.runtime.channel import Channel
    from engine.runtime.environment import TaskEnvironment
    from engine.runtime.restored_state import RestoredOperator


class AckedTask(Task):
    """A bolt: one subtask that acknowledges what it has handled."""

    def __init__(self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment) -> None:
        super().__init__(plan, vertex, environment)
        assert environment.acking is not None, plan.name
        self.acking: AckingRun = environment.acking
        self.new_id = IdStream(f"{self.acking.seed}/{environment.incarnation}/{environment.attempt}/{plan.name}")
        self.current: AnchoredTuple = UNTRACKED
        """What is being handled: whatever is emitted is anchored to it."""
        self._latency_ns = environment.cost.latency_ns(vertex.names_of(plan.subtask))

    def say(self, message: AckerMessage) -> None:
        """Tell the acker of a root."""
        self.acking.send(self.name, self._latency_ns, message)

    def _receiver(self, channel: Channel) -> Callable[[Batch], None]:
        return _AckedReceiver(self, super()._receiver(channel)).receive

    def _set_state(self, state: str, cause: Exception | None = None) -> None:
        super()._set_state(state, cause)
        if state in (TASK_FAILED, CANCELED):
            self._cut_channels()

    def _cut_channels(self) -> None:
        statistics = self.acking.statistics
        for channel in self.inputs:
            assert isinstance(channel, AckedChannel), channel.name
            statistics.lost += channel.receiver_died()
        for writer in self.writers:
            for channel in writer.channels:
                assert isinstance(channel, AckedChannel), channel.name
                statistics.lost += channel.sender_died()

    def fingerprint(self) -> object:
        """See the base class."""
        return super().fingerprint(), self.new_id.fingerprint()


class _AckedReceiver:
    """Takes the records of one input channel, one tuple at a time."""

    __slots__ = ("_process", "_task")

    def __init__(self, task: AckedTask, process: Callable[[Batch], None]) -> None:
        self._task = task
        self._process = process

    def receive(self, batch: Batch) -> None:
        assert isinstance(batch, TracedBatch), f"records without tuples: {batch!r}"
        task = self._task
        for one, part in batch.by_cause():
            task.current = one
            self._process(part)
            task.current = UNTRACKED
            for message in acks_of(one):
                task.say(message)


class AckedRouter:
    """Sends each record in a tuple of its own."""

    __slots__ = ("_router", "_task")

    def __init__(self, router: Router, task: AckedTask) -> None:
        self._router = router
        self._task = task

    def route(self, batch: Batch) -> Routed:
        """See :class:`engine.graph.partitioner.Router`."""
        task = self._task
        anchors, new_id = (task.current,), task.new_id
        routed: list[tuple[int, Batch]] = [
            (channel, TracedBatch.of(part, [child_of(anchors, new_id) for _ in part.values]))
            for channel, part in self._router.route(batch)
        ]
        task.acking.statistics.data += sum([len(part) for _, part in routed])
        return routed

    def fingerprint(self) -> object:
        """That of the router."""
        return self._router.fingerprint()


class SpoutRecord(NamedTuple):
    """A source record on its way; its split and number are its message id. ``first_ns``: when it was first sent."""

    split: str
    number: int
    batch: Batch
    first_ns: int
    replays: int


class SpoutTask(AckedTask, SourceTask):
    """A spout: a source that sends again what is not acknowledged."""

    def __init__(self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment) -> None:
        super().__init__(plan, vertex, environment)
        acking = self.acking
        self.book: SpoutBook[SpoutRecord] = SpoutBook(
            self.name, has_ackers=acking.has_ackers, max_pending=acking.settings.max_pending
        )
        self._replays: deque[SpoutRecord] = deque()
        self._progress: dict[str, SplitProgress] = {}
        self._read_from: str | None = None
        self._has_read_all = False
        self._paused_until_ns = 0
        self._ticks = False
        self._commit_is_due = False
        self._acked_since_commit = 0
        self._committed_records = 0
        self._send: Callable[[Batch], None]

    def _open(self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None) -> None:
        source = self.source
        committed = self.acking.committed(self.contexts[0].uid)
        source.begin_at = dict(committed)
        source.on_read = self._reads
        output = source.output
        assert isinstance(output, ChainOutput), self.name
        self._send, output.emit = output.emit, self._emit_new
        super()._open(restored, checkpoint_id)
        self._progress = {split: SplitProgress(position) for split, (position, _) in source.positions().items()}

    # -- sending --------------------------------------------------------------------------------------------------

    def _reads(self, split: str) -> None:
        self._read_from = split

    def _emit_new(self, batch: Batch) -> None:
        split = self._read_from
        assert split is not None, f"{self.name} emits {batch!r}, and nobody has read it"
        assert len(batch) == 1, f"{self.name} was asked for one record, and emits {batch!r}"
        number = self._progress[split].read(self.source.position_of(split))
        self._emit(SpoutRecord(split, number, batch, self.kernel.now_ns, 0))

    def _emit(self, record: SpoutRecord) -> None:
        statistics = self.acking.statistics
        if not self.acking.has_ackers:
            self._send(record.batch)
            self._settle(Outcome(record, ACKED, None))
            return
        root = self.new_id()
        self.current = tuples = AnchoredTuple({root: 0})
        self._send(record.batch)
        self.current = UNTRACKED
        statistics.tracked += 1
        self.say(self.book.track(record, root, tuples.out))
        statistics.max_pending = max(statistics.max_pending, len(self.book))
        if not self._ticks:
            self._tick_later()

    def _run_once(self) -> None:
        if self.input_ended or self.full_outputs:
            return
        if not self._has_something_to_send():
            if self._has_read_all and not len(self.book):
                self._end_stream()
        elif self.record_cost_ns:
            self._begin_slice(1)
        else:
            self.advance(1)

    def _has_something_to_send(self) -> bool:
        if self._replays:
            return True
        return not (self._has_read_all or self.book.is_full or self.kernel.now_ns < self._paused_until_ns)

    def advance(self, records: int) -> None:
        """Send one record: one again, if there is any that has to be. (Storm: ``nextTuple``.)"""
        assert records == 1, records
        with self.around("source.emit"):
            self._send_one()

    def _send_one(self) -> None:
        if self._replays:
            with self.around("spout.replay"):
                self._emit_again()
        elif self._has_something_to_send():
            count = self.source.emit_next(1)
            if count is None:
                self._has_read_all = True
            elif count == 0:
                self._pause()
            else:
                self._count(count)
        self.wake()

    def _emit_again(self) -> None:
        self.acking.statistics.replayed += 1
        self._emit(self._replays.popleft())

    def _pause(self) -> None:
        # Only new records: what has to be sent again need not wait for them.
        now = self.clock_ns
        resume_ns = self.source.available_at_ns(now)
        assert resume_ns is not None, f"{self.name} waits for a coordinator, and has none"
        assert resume_ns > now, f"{self.name} has nothing to read, yet says it can be asked at once"
        self._paused_until_ns = self.kernel.now_ns + resume_ns - now
        self.kernel.schedule(self._paused_until_ns, "receive_mail", self, ("source_ready", ()))

    def source_ready(self) -> None:
        """There may be something to read again (mail)."""
        self.wake()

    # -- what becomes of records ------------------------------------------------------------------------------------

    def acker_reply(self, reply: Reply) -> None:
        """An acker says what has become of a root (mail)."""
        outcome = self.book.on_reply(reply)
        if outcome is not None:
            self._settle(outcome)

    def acking_tick(self) -> None:
        """A timeout is over (mail)."""
        self._ticks = False
        for outcome in self.book.tick():
            self._settle(outcome)
        if len(self.book):
            self._tick_later()

    def _tick_later(self) -> None:
        due_ns = self.acking.next_tick_ns()
        if due_ns is not None:
            self._ticks = True
            self.kernel.schedule(due_ns, "receive_mail", self, ("acking_tick", ()))

    def _settle(self, outcome: Outcome[SpoutRecord]) -> None:
        record, statistics = outcome.message_id, self.acking.statistics
        if outcome.result == ACKED:
            statistics.complete(self.kernel.now_ns - record.first_ns)
            self._progress[record.split].acked(record.number)
            self._acked_since_commit += 1
            self._commit_later()
        else:
            if outcome.result == FAILED:
                statistics.failed += 1
            else:
                statistics.timed_out += 1
            self._send_again(record._replace(replays=record.replays + 1), outcome.result)
        self.wake()

    def _send_again(self, record: SpoutRecord, why: str) -> None:
        if record.replays > self.acking.settings.max_replays:
            raise ReplayLimitError(
                f"{self.name}: record {record.number} of split {record.split!r} was sent {record.replays} times and"
                f" never acknowledged, at last because it {'has' if why == FAILED else 'was'} {why}\n"
                "  acking: timeout_ns must be longer than a record is ever under way, or max_replays higher"
            )
        self._replays.append(record)
        if self.environment.instrument is not None:
            self.environment.instrument(
                RecordReplayed(
                    self.kernel.now_ns, self.attempt, self.name, record.split, record.number, why, record.replays
                )
            )

    # -- offsets ----------------------------------------------------------------------------------------------------

    def _commit_later(self) -> None:
        acking = self.acking
        if acking.commit_interval_records is not None:
            if self._acked_since_commit >= acking.commit_interval_records:
                self.commit_offsets()
        elif acking.commit_interval_ns is not None and not self._commit_is_due:
            self._commit_is_due = True
            due_ns = self.kernel.now_ns + acking.commit_interval_ns
            self.kernel.schedule(due_ns, "receive_mail", self, ("commit_offsets", ()))

    def commit_offsets(self) -> None:
        """Commit, per split, the position before the lowest record that is not acknowledged (mail)."""
        with self.around("offsets.commit"):
            self._commit_offsets()

    def _commit_offsets(self) -> None:
        self._commit_is_due = False
        self._acked_since_commit = 0
        self._committed_records = sum(progress.covered_records for progress in self._progress.values())
        ended = {split: ended for split, (_, ended) in self.source.positions().items()}
        self.acking.commit(
            self.contexts[0].uid,
            {
                split: (progress.position, ended[split] and not progress.open_records)
                for split, progress in self._progress.items()
            },
        )

    @property
    def committed_records(self) -> int:
        """Records of this attempt before the positions that were committed last."""
        return self._committed_records

    def _end_stream(self) -> None:
        # Before anybody hears of the end: whoever comes after has nothing to send behind it.
        self.commit_offsets()
        super()._end_stream()

    def fingerprint(self) -> object:
        """See the base class."""
        return (
            super().fingerprint(),
            self.book.fingerprint(),
            tuple((record.split, record.number, record.replays) for record in self._replays),
            tuple((split, progress.fingerprint()) for split, progress in self._progress.items()),
            self._has_read_all,
            max(0, self._paused_until_ns - self.kernel.now_ns),
        )
