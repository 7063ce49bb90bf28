"""Exactly-once in a loop: what a task needs to know of the channels that lead back to it (back edges).

Without a rule of its own such a task would wait for ever: the barrier on a back edge is one that it must send first.
Theory of operation, on top of the rules of ``single_checkpoint``, for every form of barrier (Carbone et al. 2015, ABS
on cyclic graphs; Flink has nothing like it, and its iterations lose their records in flight):

* *Aligned-form barriers.* The snapshot is due when every **forward** channel has delivered its barrier or ended. Then
  the back edges whose barrier is not here are logged (a capture, as for unaligned checkpoints, but on them alone). The
  snapshot is triggered with the barrier in its aligned form, and all blocked channels are resumed. The barrier goes
  round the loop; each back edge is logged until it delivers it. With the last one the log, and so the snapshot, is
  complete: ``StopCapture``, ``AlignmentFinished``.
* A barrier may come on a back edge *before* the snapshot, from a part of the loop that another subtask of the head
  feeds. It counts, and blocks its channel, until the snapshot: records after it are after the cut. The task does not
  wait for such a barrier, so this cannot lock the loop. When no forward channel is open, that barrier itself triggers.
* *After* the snapshot a barrier blocks no back edge: a back edge that is still blocked is resumed at once.
* *Unaligned barriers* are treated as on any channel: the first one, wherever it comes from, triggers; all channels are
  captured until theirs comes. A timeout before the snapshot goes unaligned likewise; once the log has begun it
  changes nothing here.
* The coordinator's trigger stands for a barrier on every open forward channel. When none is open it is the cut.
* The alignment takes until the last barrier, so it contains the way round the loop.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.checkpoint.barriers.alignment import BarrierAlignment


class BackEdges:
    """Which input channels of a task lead back to it (``channels``), and which do not (``forward``, at least one)."""

    __slots__ = ("channels", "forward")

    def __init__(self, channels: int, back_edges: Collection[int]) -> None:
        self.channels = tuple(sorted(back_edges))
        self.forward = tuple(channel for channel in range(channels) if channel not in self.channels)
        assert self.forward, "a task with back edges only has no input"

    def open_forward(self, alignment: BarrierAlignment) -> tuple[int, ...]:
        """The forward channels that have not ended."""
        return tuple(filter(alignment.is_open, self.forward))

    def is_cut(self, alignment: BarrierAlignment) -> bool:
        """Whether no record before the cut can come any more on a forward channel."""
        return all(map(alignment.is_aligned, self.open_forward(alignment)))

    def awaited(self, alignment: BarrierAlignment) -> tuple[int, ...]:
        """The back edges whose barrier is to come."""
        return tuple(one for one in self.channels if alignment.is_open(one) and not alignment.is_aligned(one))
