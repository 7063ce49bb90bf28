"""The task of a source: its own driver instead of input channels.

A source works in slices of at most one batch. The records of a slice are read when its virtual time is over, or when
mail cuts it. So the position in a snapshot is exactly that of the last record sent before the barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.events import CheckpointBarrier, StopMode
from engine.graph.plan import SubtaskPlan, VertexPlan
from engine.runtime.storage import RestoredOperator
from engine.runtime.tasks.environment import TaskEnvironment
from engine.runtime.tasks.task import Task
from operators.sources import SourceOperator


class SourceTask(Task):
    """A subtask whose chain starts with a source operator."""

    __slots__ = ("_limits", "_sources", "source", "spout")

    def __init__(self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment) -> None:
        super().__init__(plan, vertex, environment)
        head = self.chain.operators[0]
        assert isinstance(head, SourceOperator)
        self.source = head
        """The head of the chain."""
        self._sources = environment.sources
        self._limits = type(head).slice_limit is not SourceOperator.slice_limit
        """Whether the source may have fewer records than it is asked for."""
        self.spout = None
        """Reads and sends in its stead when records are tracked."""
        if environment.tracking is not None and self.tracking is not None:
            self.spout = environment.tracking.for_source(self, self.place, self.tracking)

    def _open(self, restored: Mapping[str, RestoredOperator], checkpoint_id: int | None) -> None:
        if self.spout is not None:
            self.spout.before_open()
        super()._open(restored, checkpoint_id)
        if self.spout is not None:
            self.spout.opened()

    def _run_once(self) -> None:
        if self.end.input_ended or self.full_outputs:
            return
        if self.spout is not None:
            records = limit = self.spout.records_due()
            if not records:
                return
        else:
            records = 1 if self.takes_single_records else self._sources.slice_records()
            limit = self.source.slice_limit(records) if self._limits and self.record_cost_ns else records
        if limit and self.record_cost_ns:
            self._begin_slice(limit)
        else:
            self.advance(records)

    def advance(self, records: int) -> None:
        """Emit ``records`` records, fewer only when the source ends or pauses."""
        if self._hook is None:
            self._emit_slice(records)
        else:
            with self._hook.around("source.emit"):
                self._emit_slice(records)

    def _emit_slice(self, records: int) -> None:
        if self.spout is not None:
            assert records == 1, records
            self.spout.send()
            return
        emit_next = self.source.emit_next if self.chain.watched is None else self._emit_one
        spent_until_ns = self._spent_until_ns
        count = emit_next(records)
        emitted = count or 0
        while count and emitted < records:
            count = emit_next(records - emitted)
            emitted += count or 0
        if emitted and not self.life.disowned:
            # As in `count`, without a call: every record of a study passes here.
            self.records_out += emitted
            self._sources.emitted(emitted)
        if self._spent_until_ns != spent_until_ns:
            self.notice_spending()
        if count is None:
            self.end_stream()
        elif count == 0:
            self._pause()
        else:
            self.wake()

    def _emit_one(self, _max_records: int) -> int | None:
        # Each record is a cause of its own.
        assert self.chain.watched is not None
        count = self.source.emit_next(1)
        self.chain.watched.provenance.handled()
        return count

    def end_stream(self) -> None:
        """Nothing is left to read."""
        if self.spout is not None:
            self.spout.before_end()
        self.source.output.emit_watermark(MAX_TIMESTAMP_MS)
        self.end.end_input()

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """The coordinator triggers the source. When the job shall stop and drain, its input ends here."""
        with self.place.around("barrier.inject"):
            # Without drain timers stay in the savepoint (mutant "suspended job drains").
            if barrier.options.stop is StopMode.TERMINATE and not self.end.input_ended:
                self.end_stream()
            super().trigger_checkpoint(barrier)

    def _pause(self) -> None:
        now = self.place.clock.clock_ns()
        resume_ns = self.source.available_at_ns(now)
        if resume_ns is None:
            # An event of its coordinator will wake it.
            return
        assert resume_ns > now, f"{self.name} has nothing to read, yet says it can be asked at once"
        self.rest(resume_ns - now)
        self.wake()

    def coordinator_event(self, position: int, event: Any) -> None:
        """The coordinator has sent an event, perhaps with something to read."""
        super().coordinator_event(position, event)
        self.wake()

    def count(self, emitted: int) -> None:
        """``emitted`` records were read; those of a task that was given up are not counted."""
        if emitted and not self.life.disowned:
            self.records_out += emitted
            self._sources.emitted(emitted)

    @property
    def committed_records(self) -> int | None:
        return None if self.spout is None else self.spout.committed_records

    def fingerprint(self) -> object:
        return (super().fingerprint(), None if self.spout is None else self.spout.fingerprint())

    @property
    def records_in(self) -> int:
        """Records read."""
        return self.records_out


def _copied(method: Callable[..., None]) -> Callable[..., None]:
    assert isinstance(method, FunctionType), method
    assert not method.__kwdefaults__, method
    assert not method.__closure__, method
    copied = FunctionType(method.__code__.replace(), method.__globals__, method.__name__, method.__defaults__)
    copied.__qualname__, copied.__doc__ = method.__qualname__, method.__doc__
    return copied


# Each place of a method remembers where it found an attribute (PEP 659). In a method that two classes share, and run in
# turns, it never finds it there again: with copies of its own for a source, a run record by record is 4 % faster.
for _method in (Task.run, Task.wake, Task.end_slice, Task._begin_slice):
    setattr(SourceTask, _method.__name__, _copied(_method))
