"""The stopwatch that every barrier handler carries: start delay, alignment duration, bytes taken meanwhile.

Rules (Flink: ``CheckpointBarrierHandler.markAlignment*``):

* It measures one checkpoint, the newest that began to align; others report zeros.
* The start delay is fixed when the first channel is aligned: ``max(0, now - timestamp of that barrier)``.
* Bytes count while it runs, per batch handed to the task.
* An abort of the checkpoint it measures sets it to zero; other aborts leave it alone.
"""

from __future__ import annotations

from engine.checkpoint.instructions import AlignmentMetrics

_NOTHING_MEASURED = -1


class AlignmentClock:
    """Stopwatch of one task. Times in ns."""

    __slots__ = ("_alignment_ns", "_bytes", "_checkpoint_id", "_start_delay_ns", "_started_ns")

    def __init__(self) -> None:
        self._checkpoint_id = _NOTHING_MEASURED
        self._started_ns: int | None = None
        self._start_delay_ns = 0
        self._alignment_ns = 0
        self._bytes = 0

    def start(self, checkpoint_id: int, timestamp_ns: int, now_ns: int) -> None:
        """The first channel is aligned for a checkpoint whose barrier was created at ``timestamp_ns``."""
        self._checkpoint_id = checkpoint_id
        self._started_ns = now_ns
        self._start_delay_ns = max(0, now_ns - timestamp_ns)
        self._alignment_ns = 0
        self._bytes = 0

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

    def add_bytes(self, count: int) -> None:
        """The task took a batch of this size."""
        # Outside an alignment too: the next one starts from zero, so nobody will see these.
        self._bytes += count

    def metrics(self, checkpoint_id: int) -> AlignmentMetrics:
        """What was measured for ``checkpoint_id``; zeros when another one is being measured."""
        if checkpoint_id != self._checkpoint_id:
            return AlignmentMetrics()
        return AlignmentMetrics(self._start_delay_ns, self._alignment_ns, self._bytes)

    def gauge_ns(self, now_ns: int) -> int:
        """The alignment duration as a gauge: elapsed while it runs, else the last result (0 after an abort)."""
        return self._alignment_ns if self._started_ns is None else now_ns - self._started_ns
