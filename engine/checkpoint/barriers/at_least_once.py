"""At-least-once: count barriers, block no channel (Flink: ``CheckpointBarrierTracker``).

Theory of operation
-------------------
Records are processed whenever they come. So a snapshot taken at the last barrier also holds effects of records after
earlier barriers. After a restore these records are applied again: that is the meaning of *at least once*.

``pending``  entries in id order, each with the channels seen, its target (channels open when it began) and whether it
was cancelled; at most 50, the oldest is forgotten beyond that. ``latest``  highest id that ever had an entry.

* Barrier: id above ``latest`` and one open channel: trigger at once, no entry, ``latest`` unchanged. Known id: count
  the channel; when complete drop the entry *and all older ones*, without notifying those, and trigger unless it was
  cancelled. Unknown id above ``latest``: new entry. Otherwise ignored. A newer barrier disturbs no older entry.
* Cancel: id above ``latest`` and one open channel: report the abort. Otherwise abort and drop every older entry (each
  reported once); then flag the entry of that id (reported once) and count the channel, or, if the id is new, report
  it and leave a flagged entry that swallows its barriers.
* End of partition: abort everything, or, with checkpoints after tasks finish, count the channel from the *newest*
  entry to the oldest; the first that is complete is triggered unless flagged and goes with all older ones; newer ones
  stay, with the channel counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.checkpoint.barriers.alignment import AlignmentClock, barrier_fingerprint, snapshot_without_alignment
from engine.checkpoint.barriers.barrier_handler import BarrierHandler
from engine.checkpoint.barriers.handler_instructions import (
    AbortCheckpoint,
    HandlerInstruction,
    HandlerInstructions,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier

MAX_PENDING_CHECKPOINTS = 50
"""Entries that are tracked at once (Flink: ``MAX_CHECKPOINTS_TO_TRACK``)."""

_NO_CHECKPOINT = -1


@dataclass(slots=True)
class _Entry:
    checkpoint_id: int
    barrier: CheckpointBarrier | None
    target: int
    channels: set[int] = field(default_factory=set)
    is_aborted: bool = False

    def count(self, channel: int) -> bool:
        """Add ``channel``; whether all have been seen."""
        self.channels.add(channel)
        return len(self.channels) == self.target


class AtLeastOnceTracker(BarrierHandler):
    """Counts the barriers of up to 50 checkpoints at once; see the rules at the top of the module."""

    def __init__(self, channels: int, checkpoints_after_tasks_finish: bool = True) -> None:
        self.clock = AlignmentClock()
        self._open = dict.fromkeys(range(channels))
        self._counts_ends = checkpoints_after_tasks_finish
        self._pending: list[_Entry] = []
        self._latest = _NO_CHECKPOINT

    # --- events ---------------------------------------------------------------------------------------------------

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Count the barrier; trigger when it was the last one."""
        assert barrier.options.alignment is AlignmentType.AT_LEAST_ONCE, (
            f"the at-least-once handler got a barrier with {barrier.options}"
        )
        assert channel in self._open, f"barrier {barrier.checkpoint_id} behind the end of channel {channel}"
        out: list[HandlerInstruction] = []
        self._count_barrier(channel, barrier, now_ns, out)
        return tuple(out)

    def on_cancel(self, channel: int, marker: CancelCheckpointMarker, now_ns: int) -> HandlerInstructions:
        """Abort the id and everything older."""
        cancelled = marker.checkpoint_id
        out: list[HandlerInstruction] = []
        if cancelled > self._latest and len(self._open) == 1:
            self._report_cancelled(cancelled, out)
            return tuple(out)
        while self._pending and self._pending[0].checkpoint_id < cancelled:
            self._flag_cancelled(self._pending.pop(0), out)
        if self._pending and self._pending[0].checkpoint_id == cancelled:
            self._flag_cancelled(self._pending[0], out)
            # Still counted, so that the entry is dropped once every channel has delivered its barrier or marker.
            if self._pending[0].count(channel):
                del self._pending[0]
        elif cancelled > self._latest:
            self._report_cancelled(cancelled, out)
            self._latest = cancelled
            flagged = _Entry(cancelled, None, len(self._open), {channel}, is_aborted=True)
            self._pending.insert(0, flagged)
        return tuple(out)

    def on_end_of_partition(self, channel: int, now_ns: int) -> HandlerInstructions:
        """Count the end as the channel's barrier in every entry, or abort them all."""
        assert channel in self._open, f"channel {channel} ends twice"
        del self._open[channel]
        out: list[HandlerInstruction] = []
        if not self._counts_ends:
            for entry in self._pending:
                if not entry.is_aborted:
                    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
                    out.append(AbortCheckpoint(entry.checkpoint_id, reason))
            self._pending.clear()
            self.clock.reset_all()
            return tuple(out)
        for position in reversed(range(len(self._pending))):
            if self._pending[position].count(channel):
                self._complete(position, now_ns, out)
                break
        return tuple(out)

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Count a barrier on every open channel; with none open the snapshot is due at once."""
        if len(self._open) == 0:
            return snapshot_without_alignment(barrier, now_ns)
        out: list[HandlerInstruction] = []
        for channel in tuple(self._open):
            self._count_barrier(channel, barrier, now_ns, out)
        return tuple(out)

    def close(self) -> None:
        """The task ends: nothing is pending any more."""
        self._pending.clear()

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def pending_checkpoint_ids(self) -> tuple[int, ...]:
        """Ids being counted that were not cancelled, oldest first."""
        return tuple(entry.checkpoint_id for entry in self._pending if not entry.is_aborted)

    @property
    def latest_checkpoint_id(self) -> int:
        """The highest id that ever had an entry, -1 before the first."""
        return self._latest

    @property
    def open_channels(self) -> tuple[int, ...]:
        """Channels that have not ended, in order."""
        return tuple(self._open)

    # --- the rules ------------------------------------------------------------------------------------------------

    def _count_barrier(
        self, channel: int, barrier: CheckpointBarrier, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id > self._latest and len(self._open) == 1:
            self.clock.start(checkpoint_id, barrier.timestamp_ns, now_ns)
            self.clock.stop(now_ns)
            out.append(TriggerSnapshot(barrier, self.clock.metrics(checkpoint_id)))
            return
        for position, entry in enumerate(self._pending):
            if entry.checkpoint_id == checkpoint_id:
                if entry.count(channel):
                    self._complete(position, now_ns, out)
                return
        if checkpoint_id > self._latest:
            self.clock.start(checkpoint_id, barrier.timestamp_ns, now_ns)
            self._latest = checkpoint_id
            self._pending.append(_Entry(checkpoint_id, barrier, len(self._open), {channel}))
            if len(self._pending) > MAX_PENDING_CHECKPOINTS:
                del self._pending[0]

    def _complete(self, position: int, now_ns: int, out: list[HandlerInstruction]) -> None:
        entry = self._pending[position]
        # Older entries are subsumed silently: the coordinator learns it from this checkpoint's completion.
        del self._pending[: position + 1]
        if entry.is_aborted:
            return
        assert entry.barrier is not None
        if self.clock.measures(entry.checkpoint_id):
            self.clock.stop(now_ns)
        out.append(TriggerSnapshot(entry.barrier, self.clock.metrics(entry.checkpoint_id)))

    def _flag_cancelled(self, entry: _Entry, out: list[HandlerInstruction]) -> None:
        if not entry.is_aborted:
            entry.is_aborted = True
            self._report_cancelled(entry.checkpoint_id, out)

    def _report_cancelled(self, checkpoint_id: int, out: list[HandlerInstruction]) -> None:
        self.clock.reset(checkpoint_id)
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
        out.append(AbortCheckpoint(checkpoint_id, reason))

    def validate(self) -> None:
        ids = [entry.checkpoint_id for entry in self._pending]
        assert ids == sorted(ids), ids
        assert len(ids) <= MAX_PENDING_CHECKPOINTS, len(ids)
        assert not ids or ids[-1] <= self._latest, (ids, self._latest)
        for entry in self._pending:
            assert 0 < len(entry.channels) < entry.target, entry
            assert entry.is_aborted or entry.barrier is not None, entry

    def fingerprint(self) -> tuple[object, ...]:
        return (
            self._latest,
            tuple(
                (
                    entry.checkpoint_id,
                    entry.barrier and barrier_fingerprint(entry.barrier),
                    entry.target,
                    tuple(sorted(entry.channels)),
                    entry.is_aborted,
                )
                for entry in self._pending
            ),
            tuple(self._open),
        )
