"""The parts that barrier handlers are made of: the alignment clock, and the one checkpoint that is being aligned.

Rules of the latter, which hold in whatever form its barriers come:

* The newest id takes precedence. A barrier of a higher id aborts the pending one (subsumed) and starts its own. One of
  a lower or finished id is obsolete.
* An abort is, in order: stop the capture of the checkpoint, resume its channels, forget it, tell the task. The task is
  told after the resume, and before it takes any further record.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from engine.checkpoint.barriers.handler_instructions import (
    AbortCheckpoint,
    AlignmentFinished,
    AlignmentMetrics,
    BlockChannel,
    HandlerInstruction,
    HandlerInstructions,
    ResumeChannels,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier

_NO_CHECKPOINT = -1
_OPEN, _ALIGNED, _BLOCKED = 1, 2, 4
_UNALIGNED = bytes(mark & ~_ALIGNED for mark in range(256))
_UNBLOCKED = bytes(mark & ~_BLOCKED for mark in range(256))


def barrier_fingerprint(barrier: CheckpointBarrier) -> tuple[object, ...]:
    """The fields of a barrier that determine the task's behaviour. (Its timestamp only if it may time out.)"""
    options = barrier.options
    return (
        barrier.checkpoint_id,
        options.alignment.value,
        options.kind.value,
        options.aligned_timeout_ns,
        barrier.timestamp_ns if options.timeoutable else None,
    )


def snapshot_without_alignment(barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
    """No channel is open: the trigger itself is the cut (Flink: ``StreamTask.triggerCheckpointAsync``)."""
    checkpoint_id = barrier.checkpoint_id
    metrics = AlignmentMetrics(max(0, now_ns - barrier.timestamp_ns))
    snapshot = TriggerSnapshot(barrier, metrics)
    if not barrier.options.is_priority:
        return (snapshot,)
    # Nothing to capture, but the outputs of the task may hold records that the barrier overtakes.
    return (
        StartCapture(checkpoint_id),
        snapshot,
        StopCapture(checkpoint_id),
        AlignmentFinished(checkpoint_id, metrics),
    )


class AlignmentClock:
    """Stopwatch of one task, a part of every barrier handler: start delay, alignment duration, bytes taken
    meanwhile. Times in ns.

    Rules (Flink: ``CheckpointBarrierHandler.markAlignment*``):

    * It measures one checkpoint, the newest that began to align; others report zeros.
    * The start delay is fixed when the first channel is aligned: ``max(0, now - timestamp of that barrier)``.
    * Bytes count while it runs, per batch handed to the task.
    * An abort of the checkpoint it measures sets it to zero; other aborts leave it alone.
    """

    __slots__ = ("_alignment_ns", "_bytes_before", "_checkpoint_id", "_start_delay_ns", "_started_ns", "bytes_taken")

    def __init__(self) -> None:
        self._checkpoint_id = _NO_CHECKPOINT
        self._started_ns: int | None = None
        self._start_delay_ns = 0
        self._alignment_ns = 0
        self._bytes_before = 0
        self.bytes_taken = 0
        """The size of all batches that the task took: it adds them itself, as it takes many."""

    def start(self, checkpoint_id: int, timestamp_ns: int, now_ns: int) -> None:
        """The first channel is aligned for a checkpoint whose barrier was created at ``timestamp_ns``."""
        self._checkpoint_id = checkpoint_id
        self._started_ns = now_ns
        self._start_delay_ns = max(0, now_ns - timestamp_ns)
        self._alignment_ns = 0
        self._bytes_before = self.bytes_taken

    def stop(self, now_ns: int) -> None:
        """The last channel is aligned."""
        assert self._started_ns is not None, "alignment ends without having started"
        self._alignment_ns = now_ns - self._started_ns
        self._started_ns = None

    def reset(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` was aborted."""
        if checkpoint_id == self._checkpoint_id:
            self._started_ns = None
            self._alignment_ns = 0

    def measures(self, checkpoint_id: int) -> bool:
        """Whether ``checkpoint_id`` is the one being measured."""
        return checkpoint_id == self._checkpoint_id

    def reset_all(self) -> None:
        """Everything was aborted."""
        self.reset(self._checkpoint_id)

    def metrics(self, checkpoint_id: int) -> AlignmentMetrics:
        """The measurements for ``checkpoint_id``; zeros when another one is being measured."""
        if checkpoint_id != self._checkpoint_id:
            return AlignmentMetrics()
        return AlignmentMetrics(self._start_delay_ns, self._alignment_ns, self.bytes_taken - self._bytes_before)

    def gauge_ns(self, now_ns: int) -> int:
        """The alignment duration as a gauge: elapsed while it runs, else the last result (0 after an abort)."""
        return self._alignment_ns if self._started_ns is None else now_ns - self._started_ns


class AlignmentState(Enum):
    """The state of the current checkpoint (Flink: one class of ``BarrierHandlerState`` each)."""

    ALIGNED_WAITING = "aligned, no barrier yet"
    ALIGNED_COLLECTING = "aligned, collecting barriers"
    UNALIGNED_WAITING = "unaligned, no barrier yet"
    UNALIGNED_COLLECTING = "unaligned, capturing"
    LOGGING = "aligned snapshot taken, back edges are logged"


ALIGNED_STATES = (AlignmentState.ALIGNED_WAITING, AlignmentState.ALIGNED_COLLECTING)
CAPTURING_STATES = (AlignmentState.UNALIGNED_COLLECTING, AlignmentState.LOGGING)
_WAITING = AlignmentState.ALIGNED_WAITING


class BarrierAlignment:
    """Which checkpoint a task aligns, one at a time, and how far that has come; see the rules at the top of the module.

    ``current``    the highest id ever seen;
    ``barrier``    the first barrier of ``current`` while that is pending, else ``None``;
    ``state``      how it is aligned;
    ``target``     number of channels that were open when ``current`` started;
    ``open``       channels that have not ended;
    ``aligned``    channels that delivered the barrier of ``current``, or ended meanwhile: one that does both counts
                   once;
    ``announced``  channels whose barrier of ``current`` still waits in the queue;
    ``blocked``    channels whose aligned-form barrier was taken, and which must be resumed later.

    A channel has one byte for whether it is open, aligned and blocked: three sets of the thousand channels of a task
    would be a hundred times as large, and no cache holds those of a thousand tasks.
    """

    __slots__ = (
        "_marks", "aligned_count", "announced", "barrier", "clock", "current", "open_count", "state", "target"
    )  # fmt: skip

    def __init__(self, channels: int) -> None:
        self.clock = AlignmentClock()
        self._marks = bytearray((_OPEN,)) * channels
        self.open_count = channels
        self.aligned_count = 0
        self.current = _NO_CHECKPOINT
        self.barrier: CheckpointBarrier | None = None
        self.state = _WAITING
        self.target = 0
        self.announced: set[int] = set()

    @property
    def open(self) -> tuple[int, ...]:
        """In order, like those below."""
        return self._marked(_OPEN)

    @property
    def aligned(self) -> tuple[int, ...]:
        """See the class."""
        return self._marked(_ALIGNED)

    @property
    def blocked(self) -> tuple[int, ...]:
        """See the class."""
        return self._marked(_BLOCKED)

    def _marked(self, bit: int) -> tuple[int, ...]:
        marks = self._marks
        # Without a step for each channel in the usual cases: all are open, and none is blocked or aligned.
        if max(marks, default=0) < bit:
            return ()
        if bit == _OPEN and self.open_count == len(marks):
            return tuple(range(self.open_count))
        return tuple([channel for channel, mark in enumerate(marks) if mark & bit])

    def is_open(self, channel: int) -> bool:
        """Whether ``channel`` has not ended."""
        return bool(self._marks[channel] & _OPEN)

    def is_aligned(self, channel: int) -> bool:
        """Whether ``channel`` delivered the barrier of ``current``, or ended meanwhile."""
        return bool(self._marks[channel] & _ALIGNED)

    def is_blocked(self, channel: int) -> bool:
        """Whether ``channel`` must be resumed later."""
        return bool(self._marks[channel] & _BLOCKED)

    def is_obsolete(self, checkpoint_id: int) -> bool:
        """Whether that checkpoint is over here, or a newer one was seen."""
        return checkpoint_id < self.current or (checkpoint_id == self.current and self.barrier is None)

    def start_if_new(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> bool:
        """The checkpoint of ``barrier``, not an obsolete one, is pending; returns whether it was not before."""
        if barrier.checkpoint_id == self.current:
            return False
        if self.barrier is not None:
            self.abort(self.current, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, out)
        self.current, self.barrier = barrier.checkpoint_id, barrier
        # Fixed here and never changed while pending: channels that end later join `aligned` instead.
        self.target = self.open_count
        return True

    def align(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> bool:
        """``channel`` delivered its barrier or ended; returns whether it was the last one missing."""
        if not self.aligned_count:
            self.clock.start(self.current, barrier.timestamp_ns, now_ns)
        self.announced.discard(channel)
        self.count(channel)
        if self.aligned_count < self.target:
            return False
        self.clock.stop(now_ns)
        return True

    def took_another(self, channel: int, barrier: CheckpointBarrier) -> bool:
        """Whether ``barrier`` is one more of the unaligned checkpoint being captured, and neither blocks its channel
        nor is the last: then its channel is aligned, and nothing else is to be done. So it is with nearly all."""
        marks, aligned = self._marks, self.aligned_count + 1
        if (
            marks[channel] != _OPEN
            or aligned >= self.target
            or barrier.checkpoint_id != self.current
            or barrier.options.needs_alignment
        ):
            return False
        marks[channel] = _OPEN | _ALIGNED
        self.aligned_count = aligned
        return True

    def count(self, channel: int) -> None:
        """``channel`` is aligned."""
        mark = self._marks[channel]
        if not mark & _ALIGNED:
            self._marks[channel] = mark | _ALIGNED
            self.aligned_count += 1

    def end_channel(self, channel: int) -> None:
        """Neither records nor barriers will come on ``channel`` any more."""
        assert self.is_open(channel), f"channel {channel} ends twice"
        self.open_count -= 1
        self.announced.discard(channel)
        # An ended channel need not be resumed.
        self._marks[channel] &= _ALIGNED

    def block(self, channel: int, out: list[HandlerInstruction]) -> None:
        """``channel`` yields nothing more until it is resumed."""
        assert not self._marks[channel] & _BLOCKED, f"channel {channel} yielded a barrier while it was blocked"
        # Records after the barrier wait: they are not in the snapshot (mutant "alignment skipped").
        self._marks[channel] |= _BLOCKED
        out.append(BlockChannel(channel))

    def resume(self, channels: Iterable[int], out: list[HandlerInstruction]) -> None:
        """Those of ``channels`` that are blocked may yield again."""
        marks = self._marks
        resumed = tuple([channel for channel in sorted(channels) if marks[channel] & _BLOCKED])
        if resumed:
            for channel in resumed:
                marks[channel] ^= _BLOCKED
            out.append(ResumeChannels(resumed))

    def forget_blocked(self) -> None:
        """No channel needs to be resumed."""
        self._marks = self._marks.translate(_UNBLOCKED)

    def complete_aligned(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        """No record before the cut can come any more."""
        # Snapshot first: a record released before it would be counted although it comes after the cut.
        out.append(TriggerSnapshot(barrier, self.clock.metrics(self.current)))
        self.resume(self.blocked, out)

    def complete_capture(self, out: list[HandlerInstruction]) -> None:
        """All barriers of an unaligned checkpoint, or of one that logs, are here."""
        # Ends alone trigger no snapshot, and a capture may have been refused: there is none to complete.
        if self.state not in CAPTURING_STATES:
            return
        out.append(StopCapture(self.current))
        out.append(AlignmentFinished(self.current, self.clock.metrics(self.current)))
        self.resume(self.blocked, out)

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, out: list[HandlerInstruction]) -> None:
        """Give up ``checkpoint_id``, and with it any pending one."""
        if self.state in CAPTURING_STATES:
            out.append(StopCapture(self.current, failed=True))
        self.resume(self.blocked, out)
        self.current = max(self.current, checkpoint_id)
        self.finish()
        # Only the newest id is ever aborted: the present measurement is void.
        self.clock.reset_all()
        out.append(AbortCheckpoint(checkpoint_id, reason))

    def finish(self) -> None:
        """Nothing is pending any more."""
        self.barrier = None
        self.state = _WAITING
        self.target = 0
        self.aligned_count = 0
        self._marks = self._marks.translate(_UNALIGNED)
        self.announced.clear()

    def validate(self) -> None:
        """Assert the invariants: each state has the barriers that led to it, and a pending checkpoint can end."""
        marks = self._marks
        if self.barrier is None and (not marks or max(marks) <= _OPEN):
            # Between two checkpoints, as nearly always: no channel is aligned, and none is blocked.
            assert self.state is _WAITING, self.state
            assert (sum(marks), 0) == (self.open_count, self.aligned_count)
            assert not self.announced, (self.current, self.announced)
            return
        opened, aligned, blocked = self.open, self.aligned, self.blocked
        assert self.announced.union(blocked).issubset(opened), (blocked, self.announced, opened)
        assert (len(opened), len(aligned)) == (self.open_count, self.aligned_count)
        if self.barrier is None:
            assert self.state is _WAITING, self.state
            assert not aligned, (self.current, aligned)
            assert not self.announced, (self.current, self.announced)
            assert not blocked, f"{blocked} blocked for no checkpoint"
            return
        assert self.barrier.checkpoint_id == self.current, (self.barrier, self.current)
        assert self.aligned_count or self.state in (_WAITING, AlignmentState.UNALIGNED_WAITING)
        assert not self.announced or self.state in ALIGNED_STATES, (self.state, self.announced)
        assert self.announced.isdisjoint(aligned), (self.announced, aligned)
        assert self.aligned_count < self.target, (aligned, self.target)
        is_endless = set(opened).issubset(aligned)
        assert not is_endless, f"checkpoint {self.current} waits for no channel: it never ends"

    def fingerprint(self) -> tuple[object, ...]:
        return (
            self.current,
            self.barrier and barrier_fingerprint(self.barrier),
            self.state.value,
            self.target,
            self.open,
            self.aligned,
            tuple(sorted(self.announced)),
            self.blocked,
        )
