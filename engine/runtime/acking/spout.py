"""How a source sends in mode ``acking``: one record at a time; a record not acknowledged is sent again (Storm: spout).

Rules.

* A record on a channel is a tuple. A task handles one at a time. Everything its chain emits meanwhile is anchored to
  it, in one tuple per receiver; then the task acknowledges it. Output that the chain emits at another time (a window
  that ends, a timer, the end of the input) comes from its state. It has no anchor: its inputs were acknowledged.
* A source sends one record at a time, whatever the size of batches.
* A source record is a root; split and number are its message id. It is kept until it is acknowledged. When it has
  failed or timed out, the same record is sent again, under a new root, before new ones. A source may ask to hear of
  each outcome, and may allow fewer pending records than the run does (Storm: ``ISpout.ack`` and ``fail``,
  ``topology.max.spout.pending``).
* A function in the source's own chain may claim the record it gets. Then the root's tuple is in the tree, with an edge
  of its own, until the claim is released.
* A source has come to its end when all records were read and acknowledged. Only then does event time end, too. Until
  then event time advances as if no record was ever sent again, so a replay may be late for its window.
* Other modes pay nothing for this: their tasks have no such parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from engine.elements.batch import Batch
from engine.elements.source import AckingListener, SpoutMessage
from engine.observe.trace_events import RecordReplayed
from engine.protocols.acking.anchoring import AnchoredTuple, Reply
from engine.protocols.acking.settings import ReplayLimitError
from engine.protocols.acking.spout_book import ACKED, FAILED, Outcome, SplitProgress, SpoutBook
from engine.runtime.acking.bolt import Bolt
from engine.runtime.channels import ChainOutput
from engine.runtime.tasks import TaskPlace, TrackedSource


class SpoutRecord(NamedTuple):
    """A source record on its way; its split and number are its message id. ``first_ns``: when it was first sent."""

    split: str
    number: int
    batch: Batch
    first_ns: int
    replays: int


class Spout:
    """Implements :class:`engine.runtime.tasks.tracking.SourceTracking`."""

    def __init__(self, task: TrackedSource, place: TaskPlace, bolt: Bolt) -> None:
        self._task = task
        self._place = place
        self._bolt = bolt
        self._run = acking = bolt.run
        self._kernel = place.kernel
        self._uid = place.vertex.operators[0].uid
        self.book: SpoutBook[SpoutRecord] = SpoutBook(
            place.name, has_ackers=acking.has_ackers, max_pending=acking.settings.max_pending
        )
        self._listener: AckingListener | None = None
        self._replays: deque[SpoutRecord] = deque()
        self._progress: dict[str, SplitProgress] = {}
        self._read_from: str | None = None
        self._has_read_all = False
        self._paused_until_ns = 0
        self._ticks = False
        self._commit_is_due = False
        self._acked_since_commit = 0
        self.committed_records = 0
        """Records of this attempt before the positions that were committed last."""
        self._send: Callable[[Batch], None]

    def before_open(self) -> None:
        """See the contract: reading goes on at the committed position, and records read come here."""
        source = self._task.source
        source.begin_at = dict(self._run.committed(self._uid))
        source.on_read = self._reads
        output = source.output
        assert isinstance(output, ChainOutput), self._place.name
        self._send, output.emit = output.emit, self._emit_new

    def opened(self) -> None:
        source = self._task.source
        self._listener = source.acking_listener()
        if self._listener is not None and self._listener.max_pending is not None:
            self.book.max_pending = self._listener.max_pending
        positions = source.positions()
        self._progress = {split: SplitProgress(position) for split, (position, _) in positions.items()}

    # -- sending --------------------------------------------------------------------------------------------------

    def _reads(self, split: str, due_ns: int | None) -> None:
        self._read_from = split

    def _emit_new(self, batch: Batch) -> None:
        split = self._read_from
        assert split is not None, f"{self._place.name} emits {batch!r}, and nobody has read it"
        assert len(batch) == 1, f"{self._place.name} was asked for one record, and emits {batch!r}"
        number = self._progress[split].read(self._task.source.position_of(split))
        self._emit(SpoutRecord(split, number, batch, self._kernel.now_ns, 0))

    def _emit(self, record: SpoutRecord) -> None:
        statistics = self._run.statistics
        if not self._run.has_ackers:
            self._send(record.batch)
            self._settle(Outcome(record, ACKED, None))
            return
        root = self._bolt.new_id()
        bolt, tuples = self._bolt, AnchoredTuple({root: 0})
        bolt.current = (tuples,)
        bolt.claim()
        self._send(record.batch)
        bolt.current = ()
        statistics.track(self._place.name)
        bolt.say(self.book.track(record, root, self._value_of(root, tuples)))
        statistics.pending(self._place.name, len(self.book))
        if not self._ticks:
            self._tick_later()

    def _value_of(self, root: int, tuples: AnchoredTuple) -> int:
        """The value of the root's INIT: the edges of its first tuples, and its own while a function has a claim."""
        value, tuples.claims = tuples.out, tuples.claims - 1
        if tuples.claims or tuples.failed:
            tuples.edges[root] = edge = self._bolt.new_id()
            tuples.out = 0
            # Without it the tree would be complete, or an INIT of value 0 would hide the failure: the acker tests for
            # 0 first.
            return value ^ edge
        return value

    def records_due(self) -> int:
        """See the contract. When all was read and acknowledged the stream ends."""
        if self._has_something_to_send():
            return 1
        if self._has_read_all and not len(self.book):
            self._task.end_stream()
        return 0

    def _has_something_to_send(self) -> bool:
        if self._replays:
            return True
        return not (self._has_read_all or self.book.is_full or self._kernel.now_ns < self._paused_until_ns)

    def send(self) -> None:
        """Send one record, one that must be sent again first. (Storm: ``nextTuple``.)"""
        task = self._task
        if self._replays:
            with self._place.around("spout.replay"):
                self._emit_again()
        elif self._has_something_to_send():
            count = task.source.emit_next(1)
            if count is None:
                self._has_read_all = True
            elif count == 0:
                self._pause()
            else:
                task.count(count)
        task.wake()

    def _emit_again(self) -> None:
        self._run.statistics.replay(self._place.name)
        self._emit(self._replays.popleft())

    def _pause(self) -> None:
        # Only new records: a record that must be sent again need not wait for them.
        now = self._place.clock.clock_ns()
        resume_ns = self._task.source.available_at_ns(now)
        assert resume_ns is not None, f"{self._place.name} waits for a coordinator, and has none"
        assert resume_ns > now, f"{self._place.name} has nothing to read, yet says it can be asked at once"
        self._paused_until_ns = self._kernel.now_ns + resume_ns - now
        self._kernel.schedule(self._paused_until_ns, "receive_mail", self._task, ("wake", ()))

    # -- outcomes of records ----------------------------------------------------------------------------------------

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
        due_ns = self._run.next_tick_ns()
        if due_ns is not None:
            self._ticks = True
            self._kernel.schedule(due_ns, "receive_mail", self._task, ("acking_tick", ()))

    def _settle(self, outcome: Outcome[SpoutRecord]) -> None:
        record, statistics = outcome.message_id, self._run.statistics
        self._tell(record, outcome.result)
        if outcome.result == ACKED:
            statistics.complete(self._place.name, self._kernel.now_ns - record.first_ns)
            self._progress[record.split].acked(record.number)
            self._acked_since_commit += 1
            self._commit_later()
        else:
            statistics.not_complete(self._place.name, is_failed=outcome.result == FAILED)
            self._send_again(record._replace(replays=record.replays + 1), outcome.result)
        self._task.wake()

    def _tell(self, record: SpoutRecord, result: str) -> None:
        """Call the source back."""
        listener, value = self._listener, record.batch.values[0]
        if listener is None:
            return
        message = SpoutMessage(value, record.split, record.number, record.replays)
        try:
            (listener.ack if result == ACKED else listener.fail)(message)
        except Exception as error:
            what = "ack callback" if result == ACKED else "fail callback"
            raise self._task.source.user_error(what, value, error) from error

    def _send_again(self, record: SpoutRecord, why: str) -> None:
        if record.replays > self._run.settings.max_replays:
            raise ReplayLimitError(
                f"{self._place.name}: record {record.number} of split {record.split!r} was sent {record.replays} times"
                f" and never acknowledged, at last because it {'has' if why == FAILED else 'was'} {why}\n"
                "  acking: timeout_ns must be longer than a record is ever under way, or max_replays higher"
            )
        self._replays.append(record)
        place = self._place
        if place.environment.instrument is not None:
            now, attempt = self._kernel.now_ns, place.attempt
            place.environment.instrument(
                RecordReplayed(now, attempt, place.name, record.split, record.number, why, record.replays)
            )

    # -- offsets ----------------------------------------------------------------------------------------------------

    def _commit_later(self) -> None:
        acking = self._run
        if acking.commit_interval_records is not None:
            if self._acked_since_commit >= acking.commit_interval_records:
                self.commit_offsets()
        elif acking.commit_interval_ns is not None and not self._commit_is_due:
            self._commit_is_due = True
            due_ns = self._kernel.now_ns + acking.commit_interval_ns
            self._kernel.schedule(due_ns, "receive_mail", self._task, ("commit_offsets", ()))

    def commit_offsets(self) -> None:
        """Commit, per split, the position before the lowest record that is not acknowledged (mail)."""
        with self._place.around("offsets.commit"):
            self._commit_offsets()

    def _commit_offsets(self) -> None:
        self._commit_is_due = False
        self._acked_since_commit = 0
        self.committed_records = sum(progress.covered_records for progress in self._progress.values())
        ended = {split: ended for split, (_, ended) in self._task.source.positions().items()}
        self._run.commit(
            self._uid,
            {
                split: (progress.position, ended[split] and not progress.open_records)
                for split, progress in self._progress.items()
            },
        )

    def before_end(self) -> None:
        """See the contract. It commits before any task hears of the end, so a successor has nothing more to send."""
        self.commit_offsets()

    def fingerprint(self) -> object:
        return (
            self.book.fingerprint(),
            tuple((record.split, record.number, record.replays) for record in self._replays),
            tuple((split, progress.fingerprint()) for split, progress in self._progress.items()),
            self._has_read_all,
            max(0, self._paused_until_ns - self._kernel.now_ns),
        )
