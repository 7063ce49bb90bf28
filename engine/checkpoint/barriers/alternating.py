"""Exactly-once, aligned as long as that is quick: the handler of a job with unaligned checkpoints switched on.

Theory of operation (Flink: ``SingleCheckpointBarrierHandler.alternating`` and its states). The handler obeys the
options of each barrier, so aligned checkpoints, savepoints, timeouts and unaligned checkpoints may follow one another.
States:

A0 aligned, no barrier yet;  A1 aligned, collecting;  U0 unaligned, no barrier yet;  U1 unaligned, collecting.
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
"""

from __future__ import annotations

from engine.checkpoint.barriers.channel_capture import InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    ArmAlignmentTimer,
    HandlerInstruction,
    HandlerInstructions,
    PromoteBarrier,
)
from engine.checkpoint.barriers.single_checkpoint import CheckpointRefused
from engine.checkpoint.barriers.unaligned import AlignmentState, UnalignedBarrierHandler
from engine.elements.events import AlignmentType, CheckpointBarrier

_ALIGNED_STATES = (AlignmentState.ALIGNED_WAITING, AlignmentState.ALIGNED_COLLECTING)


class AlternatingBarrierHandler(UnalignedBarrierHandler):
    """Aligns, until the barriers of a checkpoint are late or one of them comes unaligned."""

    _first_state = AlignmentState.ALIGNED_WAITING

    def __init__(
        self,
        channels: int,
        checkpoints_after_tasks_finish: bool = True,
        *,
        capture: InputCapture,
        source_channels: tuple[int, ...] = (),
    ) -> None:
        super().__init__(channels, checkpoints_after_tasks_finish, capture=capture, source_channels=source_channels)
        # Channels whose barrier of the current checkpoint still waits in the queue.
        self._announced: set[int] = set()

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> HandlerInstructions:
        """Go unaligned, if ``checkpoint_id`` is still being aligned."""
        barrier = self._first_barrier
        if barrier is None or checkpoint_id != self._current or self._state not in _ALIGNED_STATES:
            return ()
        assert barrier.options.timeoutable, f"no timer was armed for {barrier}"
        out: list[HandlerInstruction] = []
        try:
            self._time_out(barrier, out)
        except CheckpointRefused as refused:
            self._abort(self._current, refused.reason, out)
        return tuple(out)

    def _on_started(self, barrier: CheckpointBarrier, now_ns: int, out: list[HandlerInstruction]) -> None:
        timeout_ns = barrier.options.aligned_timeout_ns
        if self._state in _ALIGNED_STATES and barrier.options.timeoutable:
            assert timeout_ns is not None
            out.append(ArmAlignmentTimer(self._current, max(now_ns, barrier.timestamp_ns + timeout_ns)))

    def _on_announced(self, channel: int, out: list[HandlerInstruction]) -> None:
        if self._state in _ALIGNED_STATES:
            self._announced.add(channel)
        else:
            super()._on_announced(channel, out)

    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        # The barrier is here: nothing is left to promote.
        self._announced.discard(channel)
        if self._state in _ALIGNED_STATES:
            if barrier.options.alignment is not AlignmentType.UNALIGNED:
                if blocks:
                    self._block(channel, out)
                if complete:
                    self._complete_aligned(barrier, out)
                    return
                if not _is_late(barrier, now_ns):
                    self._state = AlignmentState.ALIGNED_COLLECTING
                    return
            self._time_out(barrier, out)
        super()._on_channel_aligned(channel, barrier, blocks, complete, now_ns, out)

    def _on_channel_ended(
        self, barrier: CheckpointBarrier, complete: bool, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        if self._state is AlignmentState.ALIGNED_COLLECTING:
            if complete:
                self._complete_aligned(barrier, out)
                return
            if _is_late(barrier, now_ns):
                self._time_out(barrier, out)
        super()._on_channel_ended(barrier, complete, now_ns, out)

    def _time_out(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        out += [PromoteBarrier(channel) for channel in sorted(self._announced)]
        self._announced.clear()
        if self._state is AlignmentState.ALIGNED_COLLECTING:
            self._start_capture(barrier, out)
        else:
            self._state = AlignmentState.UNALIGNED_WAITING

    def _finish(self) -> None:
        super()._finish()
        self._announced.clear()

    def _close_channel(self, channel: int) -> None:
        super()._close_channel(channel)
        self._announced.discard(channel)

    def validate(self) -> None:
        """Assert the invariants: each announced barrier waits on an open channel for an aligned checkpoint."""
        super().validate()
        assert not self._announced or (self._is_pending and self._state in _ALIGNED_STATES), self._announced
        assert self._announced.isdisjoint(self._aligned), (self._announced, self._aligned)
        assert all(self._is_open[channel] for channel in self._announced), self._announced

    def fingerprint(self) -> tuple[object, ...]:
        return (*super().fingerprint(), tuple(sorted(self._announced)))


def _is_late(barrier: CheckpointBarrier, now_ns: int) -> bool:
    timeout_ns = barrier.options.aligned_timeout_ns
    return barrier.options.timeoutable and timeout_ns is not None and timeout_ns < now_ns - barrier.timestamp_ns
