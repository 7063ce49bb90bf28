"""Exactly-once: the handler that tracks one checkpoint at a time, aligned, unaligned, or first one and then the other
(Flink: ``SingleCheckpointBarrierHandler``; unaligned: Carbone et al.).

Theory of operation. The handler owns a ``BarrierAlignment``, and obeys the options of each barrier: aligned
checkpoints, savepoints, timeouts and unaligned checkpoints may follow one another. Without a ``capture`` all of them
are aligned.

* The channel of an obsolete barrier is resumed at once, and nothing else changes.
* A cancel marker acts iff its id is higher than ``current``, or equal with at least one channel aligned. For a higher
  id only that id is reported; the pending one vanishes silently, and its channels are released.

*Aligned.* A barrier blocks its channel; a chained source is blocked likewise, by its own trigger. Records after the
barrier, and newer barriers, wait upstream. The last barrier (or the end of the last missing channel) takes the snapshot
and *then* resumes all blocked channels. So the snapshot follows every record before a barrier and precedes every record
after one, on every channel: the cut is consistent and holds no in-flight data.

*Unaligned.* The first barrier opens channel-state writing, starts the capture of in-flight records on every channel and
triggers the snapshot. Each further barrier only ends the capture of its channel (by its arrival there, see
``channel_capture``); the last one ends the input part and completes the metrics. No channel is blocked. A barrier still
in aligned form blocks its channel until the checkpoint ends, because its sender waits for a resume. So are chained
sources: they emit nothing between a snapshot that another channel's barrier triggered and their own trigger, and need
no channel state. The end of a channel counts as its barrier, but cannot trigger. A channel that holds the barrier of a
newer checkpoint refuses the capture: the checkpoint is aborted as subsumed.

States: A0 aligned, no barrier yet;  A1 aligned, collecting;  U0 unaligned, no barrier yet;  U1 unaligned, capturing.
Every checkpoint begins in A0.

=================== ============================== ============================== =============================
event               A0                             A1                             U0, U1
=================== ============================== ============================== =============================
announcement        remember it                    remember it                    promote that barrier at once
aligned-form        block. Complete: aligned       block. Complete: aligned       block, then as unaligned
barrier             snapshot. Expired: timeout,    snapshot. Expired: timeout.
                    then as in U0. Else A1         Else stay
unaligned barrier   timeout, then as in U0         timeout, then as in U1         U0: start capture, trigger, U1.
                                                                                  Complete: finish
timeout             promote the announced          promote the announced          nothing
                    barriers, U0                   barriers, start capture,
                                                   trigger, U1
end of a channel    only counted                   complete: aligned snapshot.    U0: only counted.
                                                   Expired: timeout               U1: complete: finish
=================== ============================== ============================== =============================

* The handler asks *first* whether all barriers are here, then whether they are late.
* Two clocks decide that a checkpoint is late: the timer, armed when the id is first seen, for ``timestamp + timeout``
  but not before now; and a check at every barrier and end of channel, strict: ``timeout < now - timestamp``. Both
  count from the creation of the barrier, so it may arrive expired.
* With announcements only, a timeout merely changes the state: the snapshot comes with the first barrier, which is
  promoted past the records. With one barrier taken, the timeout itself triggers.
* Channels that are blocked at the switch, or deliver an aligned-form barrier after it, stay blocked until the
  checkpoint ends.
* A timer is void once its checkpoint is not pending any more, or is unaligned already. Only ``ALIGNED`` barriers with a
  timeout ever expire; forced-aligned ones do not.

In a loop an aligned snapshot is due earlier, and a fifth state follows it: see ``back_edges``.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.checkpoint.barriers.alignment import (
    ALIGNED_STATES,
    CAPTURING_STATES,
    AlignmentState,
    BarrierAlignment,
    snapshot_without_alignment,
)
from engine.checkpoint.barriers.back_edges import BackEdges
from engine.checkpoint.barriers.barrier_handler import BarrierHandler
from engine.checkpoint.barriers.channel_capture import InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    ArmAlignmentTimer,
    BlockChannel,
    HandlerInstruction,
    HandlerInstructions,
    PromoteBarrier,
    ResumeChannels,
    StartCapture,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CancelCheckpointMarker, CheckpointBarrier

_COLLECTING, _LOGGING = AlignmentState.ALIGNED_COLLECTING, AlignmentState.LOGGING
_CAPTURING = AlignmentState.UNALIGNED_COLLECTING


class SingleCheckpointHandler(BarrierHandler):
    """Tracks at most one checkpoint; see the rules at the top of the module.

    ``capture``          of the channels; ``None`` in a job whose checkpoints are all aligned, outside loops;
    ``source_channels``  those that stand for a source chained into the task;
    ``back_edges``       those that lead back to this task, in a loop.
    """

    def __init__(
        self,
        channels: int,
        checkpoints_after_tasks_finish: bool = True,
        *,
        capture: InputCapture | None = None,
        source_channels: tuple[int, ...] = (),
        back_edges: Collection[int] = (),
    ) -> None:
        assert all(0 <= channel < channels for channel in source_channels), (source_channels, channels)
        assert capture is None or len(capture.channels) == channels, (capture, channels)
        assert capture is not None or not back_edges, "back edges are captured"
        self._alignment = BarrierAlignment(channels)
        self.clock = self._alignment.clock
        self._counts_ends = checkpoints_after_tasks_finish
        self._capture = capture
        self._source_channels = source_channels
        self._back_edges = BackEdges(channels, back_edges) if back_edges else None

    # --- events ---------------------------------------------------------------------------------------------------

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Align ``channel``, or ignore an obsolete barrier."""
        alignment = self._alignment
        if alignment.state is _CAPTURING and self._back_edges is None and alignment.took_another(channel, barrier):
            return ()
        assert alignment.is_open(channel), f"barrier {barrier.checkpoint_id} behind the end of channel {channel}"
        blocks = barrier.options.needs_alignment
        assert blocks or self._capture is not None, f"the aligned handler got a barrier with {barrier.options}"
        out: list[HandlerInstruction] = []
        started = False
        if barrier.checkpoint_id != alignment.current or alignment.barrier is None:
            if alignment.is_obsolete(barrier.checkpoint_id):
                # A barrier in aligned form blocks its channel like any other, and only this handler can resume it.
                waits = blocks and not alignment.is_blocked(channel)
                return (BlockChannel(channel), ResumeChannels((channel,))) if waits else ()
            started = alignment.start_if_new(barrier, out)
        self._align(channel, barrier, blocks, now_ns, out)
        if started and alignment.barrier is not None:
            self._arm_timer(barrier, now_ns, out)
        return tuple(out)

    def on_announcement(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Start the checkpoint of ``barrier`` if it is new; then remember it for a timeout, or let it overtake."""
        alignment = self._alignment
        if self._capture is None or alignment.is_obsolete(barrier.checkpoint_id):
            return ()
        out: list[HandlerInstruction] = []
        started = alignment.start_if_new(barrier, out)
        # An announcement that comes after its barrier has nothing left to promote.
        if not alignment.is_aligned(channel):
            if alignment.state in ALIGNED_STATES:
                alignment.announced.add(channel)
            else:
                out.append(PromoteBarrier(channel))
        if started:
            self._arm_timer(barrier, now_ns, out)
        return tuple(out)

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> HandlerInstructions:
        """Go unaligned, if ``checkpoint_id`` is still being aligned."""
        barrier = self._alignment.barrier
        if barrier is None or barrier.checkpoint_id != checkpoint_id or self._alignment.state not in ALIGNED_STATES:
            return ()
        if self._deadline_ns(barrier) is None:
            return ()
        out: list[HandlerInstruction] = []
        self._time_out(barrier, out)
        self._resume_back_edges(out)
        return tuple(out)

    def on_cancel(self, channel: int, marker: CancelCheckpointMarker, now_ns: int) -> HandlerInstructions:
        """Abort, when the marker is for a newer checkpoint or for the one being aligned."""
        cancelled, alignment = marker.checkpoint_id, self._alignment
        out: list[HandlerInstruction] = []
        # A marker of an older checkpoint changes nothing (mutant "late cancel obeyed").
        if cancelled > alignment.current or (cancelled == alignment.current and alignment.aligned_count):
            alignment.abort(cancelled, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER, out)
        return tuple(out)

    def on_end_of_partition(self, channel: int, now_ns: int) -> HandlerInstructions:
        """Count the end as the channel's barrier, or abort, depending on ``checkpoints_after_tasks_finish``."""
        self._alignment.end_channel(channel)
        barrier = self._alignment.barrier
        if barrier is None:
            return ()
        out: list[HandlerInstruction] = []
        if self._counts_ends:
            self._align(channel, barrier, None, now_ns, out)
        else:
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
            self._alignment.abort(barrier.checkpoint_id, reason, out)
        return tuple(out)

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Act as if the barrier had come on every open channel, back edges apart, without blocking any."""
        alignment, edges = self._alignment, self._back_edges
        if alignment.is_obsolete(barrier.checkpoint_id):
            return ()
        out: list[HandlerInstruction] = []
        started = alignment.start_if_new(barrier, out)
        if not alignment.open_count:
            alignment.finish()
            return (*out, *snapshot_without_alignment(barrier, now_ns))
        triggered = alignment.open if edges is None else edges.open_forward(alignment)
        for channel in triggered:
            # The channels aligned before may complete the checkpoint before the turn of the last one.
            if alignment.barrier is not None:
                self._align(channel, barrier, False, now_ns, out)
        # A back edge may have triggered it already.
        if edges is not None and not triggered and alignment.state not in CAPTURING_STATES:
            # One of the forward channels, all of which have ended, stands for the trigger: one must be aligned.
            alignment.count(edges.forward[0])
            alignment.target += 1
            self.clock.start(alignment.current, barrier.timestamp_ns, now_ns)
            if barrier.options.is_priority:
                self._time_out(barrier, out)
                self._start_capture(barrier, out)
            else:
                self._begin_log(barrier, edges, out)
        if started and alignment.barrier is not None:
            self._arm_timer(barrier, now_ns, out)
        return tuple(out)

    def close(self) -> None:
        """The task ends: forget the pending checkpoint; no channel is resumed, and no message is sent."""
        self._alignment.forget_blocked()
        self._alignment.finish()

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def pending_checkpoint_ids(self) -> tuple[int, ...]:
        """The checkpoint being aligned, if any."""
        return () if self._alignment.barrier is None else (self._alignment.current,)

    @property
    def latest_checkpoint_id(self) -> int:
        """The highest id seen, -1 before the first."""
        return self._alignment.current

    @property
    def open_channels(self) -> tuple[int, ...]:
        """Channels that have not ended, in order."""
        return self._alignment.open

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        """Channels that wait for a resume, in order."""
        return self._alignment.blocked

    @property
    def captured_channels(self) -> tuple[int, ...]:
        """All open ones except chained sources: records a source has not emitted are covered by its position. While
        back edges are logged, those whose barrier is to come."""
        if self._back_edges is not None and self._alignment.state is _LOGGING:
            return self._back_edges.awaited(self._alignment)
        opened = self._alignment.open
        if not self._source_channels:
            return opened
        return tuple(channel for channel in opened if channel not in self._source_channels)

    # --- the checkpoint -------------------------------------------------------------------------------------------

    def _align(
        self, channel: int, barrier: CheckpointBarrier, blocks: bool | None, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        """``channel`` delivered its barrier, or ended (``blocks``: ``None``)."""
        # A barrier is awaited from every channel of all inputs (mutant "one barrier per input").
        alignment = self._alignment
        complete = alignment.align(channel, barrier, now_ns)
        if blocks is None:
            self._on_channel_ended(barrier, complete, now_ns, out)
        elif (
            blocks
            and alignment.state is _COLLECTING
            and barrier.options.aligned_timeout_ns is None
            and self._back_edges is None
        ):
            # Nearly all barriers of a task with many channels: the same as below, in fewer steps.
            alignment.block(channel, out)
            if complete:
                alignment.complete_aligned(barrier, out)
        else:
            self._on_channel_aligned(channel, barrier, blocks, complete, now_ns, out)
        if complete:
            alignment.finish()

    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        """``blocks``: the barrier has a form that blocks its channel."""
        alignment, edges = self._alignment, self._back_edges
        # Blocked already: a chained source when its trigger comes after the capture began.
        if blocks and not (alignment.is_blocked(channel) and alignment.state in CAPTURING_STATES):
            alignment.block(channel, out)
        if alignment.state in ALIGNED_STATES:
            if not barrier.options.is_priority:
                if complete:
                    alignment.complete_aligned(barrier, out)
                    return
                if edges is not None and edges.is_cut(alignment):
                    self._begin_log(barrier, edges, out)
                    return
                if not self._is_late(barrier, now_ns):
                    alignment.state = _COLLECTING
                    return
            self._time_out(barrier, out)
        if alignment.state is AlignmentState.UNALIGNED_WAITING:
            self._start_capture(barrier, out)
        if complete:
            alignment.complete_capture(out)
        self._resume_back_edges(out)

    def _on_channel_ended(
        self, barrier: CheckpointBarrier, complete: bool, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        """``barrier``: the one that began the pending checkpoint."""
        alignment, edges = self._alignment, self._back_edges
        collecting = alignment.state is _COLLECTING
        if complete and collecting:
            alignment.complete_aligned(barrier, out)
        elif complete:
            alignment.complete_capture(out)
        elif edges is not None and alignment.state in ALIGNED_STATES and edges.is_cut(alignment):
            self._begin_log(barrier, edges, out)
        elif collecting and self._is_late(barrier, now_ns):
            self._time_out(barrier, out)
            self._resume_back_edges(out)

    # --- timeouts -------------------------------------------------------------------------------------------------

    def _deadline_ns(self, barrier: CheckpointBarrier) -> int | None:
        """When its alignment times out; ``None`` never."""
        timeout_ns = barrier.options.aligned_timeout_ns
        if timeout_ns is None or self._capture is None or not barrier.options.timeoutable:
            return None
        return barrier.timestamp_ns + timeout_ns

    def _is_late(self, barrier: CheckpointBarrier, now_ns: int) -> bool:
        deadline_ns = self._deadline_ns(barrier)
        return deadline_ns is not None and deadline_ns < now_ns

    def _arm_timer(self, barrier: CheckpointBarrier, now_ns: int, out: list[HandlerInstruction]) -> None:
        """The checkpoint of ``barrier`` has begun, and this event has not finished it."""
        deadline_ns = self._deadline_ns(barrier)
        if deadline_ns is not None and self._alignment.state in ALIGNED_STATES:
            out.append(ArmAlignmentTimer(barrier.checkpoint_id, max(now_ns, deadline_ns)))

    # --- captured -------------------------------------------------------------------------------------------------

    def _time_out(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        alignment = self._alignment
        out += [PromoteBarrier(channel) for channel in sorted(alignment.announced)]
        alignment.announced.clear()
        if alignment.state is _COLLECTING:
            self._start_capture(barrier, out)
        else:
            alignment.state = AlignmentState.UNALIGNED_WAITING

    def _start_capture(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        alignment, capture = self._alignment, self._capture
        assert capture is not None, f"nothing can be captured for {barrier}"
        if not capture.can_start(alignment.current):
            alignment.abort(alignment.current, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, out)
            return
        for channel in self._source_channels:
            if alignment.is_open(channel) and not alignment.is_blocked(channel):
                alignment.block(channel, out)
        alignment.state = AlignmentState.UNALIGNED_COLLECTING
        out.append(StartCapture(alignment.current))
        out.append(TriggerSnapshot(barrier.as_unaligned(), self.clock.metrics(alignment.current)))

    def _begin_log(self, barrier: CheckpointBarrier, edges: BackEdges, out: list[HandlerInstruction]) -> None:
        alignment, capture = self._alignment, self._capture
        assert capture is not None, f"nothing can be captured for {barrier}"
        if not capture.can_start(alignment.current, edges.awaited(alignment)):
            alignment.abort(alignment.current, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, out)
            return
        alignment.announced.clear()
        alignment.state = _LOGGING
        out.append(StartCapture(alignment.current))
        # In the form it has: no barrier of an aligned snapshot overtakes records on the outputs.
        alignment.complete_aligned(barrier, out)

    def _resume_back_edges(self, out: list[HandlerInstruction]) -> None:
        # After the snapshot they go on: what comes on them is captured until their barrier.
        if self._back_edges is not None and self._alignment.state in CAPTURING_STATES:
            self._alignment.resume(self._back_edges.channels, out)

    # --- inspection -----------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert the invariants: only channels that need it are blocked, and the head of a loop never waits for a
        barrier that cannot come."""
        alignment, state, edges = self._alignment, self._alignment.state, self._back_edges
        alignment.validate()
        assert alignment.barrier is None or alignment.aligned_count or self._capture is not None, alignment.current
        if alignment.barrier is not None:
            excused = self._source_channels if state is AlignmentState.UNALIGNED_COLLECTING else ()
            unexcused = set(alignment.blocked).difference(alignment.aligned, excused)
            assert not unexcused, (alignment.blocked, alignment.aligned)
        if edges is None:
            assert state is not _LOGGING, "there is nothing to log"
        elif state in CAPTURING_STATES:
            is_held = any(map(alignment.is_blocked, edges.channels))
            assert not is_held, f"{self.blocked_channels} blocked behind the snapshot"
            is_endless = state is _LOGGING and not edges.awaited(alignment)
            assert not is_endless, f"the log of {alignment.current} has no end"
        elif state is _COLLECTING:
            assert not edges.is_cut(alignment), f"checkpoint {alignment.current} waits for its own barrier"

    def fingerprint(self) -> tuple[object, ...]:
        return self._alignment.fingerprint()
