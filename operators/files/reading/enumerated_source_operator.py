"""The operator of a source whose enumerator hands out splits: it asks, reads, and asks again.

Rules (Flink: ``FileSourceReader``, ``SourceReaderBase``, ``SourceOperator``)
-----------------------------------------------------------------------------
* The reader asks for one split when it starts without any, and for one more whenever it has finished one. It first
  reads the splits that it was restored with, in order, one after the other.
* Finished splits leave the state. Assigned splits that are not begun stay in it.
* The reader waits without end until its coordinator answers. It ends when it has no split and the coordinator has said
  that there are no more.
* Its watermark comes from its splits. Without a split the watermark of the last split stays, and the reader becomes
  idle after the strategy's timeout.
* Subtask 0 lists the files for the coordinator: on request, and in a continuous source once per interval, first one
  interval after the start. A failed listing is counted (``numEnumerationsFailed``) and skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.elements.errors import ConfigurationError
from engine.elements.operator import Operator
from engine.elements.operator_coordination import OperatorCoordinator
from engine.elements.source import Source, SplitReader
from operators.files.reading.split_coordinator import (
    DISCOVERED,
    LIST,
    LISTED,
    LISTING_READER,
    NO_MORE_SPLITS,
    REQUEST,
    SPLIT,
    FileSplitCoordinator,
    plain_splits,
)
from operators.files.reading.splits import FileSourceSplit
from operators.sources import NO_SPLIT, RunningSplit, SavedSplit, SourceOperator, saved_shape

if TYPE_CHECKING:
    from operators.files.reading.file_source import FileSource
    from operators.time import WatermarkStrategy

_STATE = "assigned-splits"


class EnumeratedSourceFactory:
    """Makes the operators of one source, and their coordinator. ``opens``: the object that opens splits, if not the
    source itself."""

    def __init__(
        self, source: FileSource, watermarks: WatermarkStrategy | None = None, opens: Source | None = None
    ) -> None:
        self.source, self.watermarks = source, watermarks
        self.opens: Source = source if opens is None else opens

    def __call__(self) -> Operator:
        return EnumeratedSourceOperator(self.source, self.watermarks, self.opens)

    def opening(self, opens: Source) -> EnumeratedSourceFactory:
        """The same, with another object that opens splits and reads them in its own way."""
        return EnumeratedSourceFactory(self.source, self.watermarks, opens)

    def create_coordinator(self) -> OperatorCoordinator:
        """The driver of a fresh enumerator."""
        return FileSplitCoordinator(
            self.source.create_assigner, is_continuous=self.source.monitor_interval_ms is not None
        )


class EnumeratedSourceOperator(SourceOperator):
    """Reads the splits that its coordinator assigns to it."""

    takes_turns = False

    def __init__(
        self, source: FileSource, watermark_strategy: WatermarkStrategy | None = None, opens: Source | None = None
    ) -> None:
        super().__init__(source if opens is None else opens, watermark_strategy)
        self._enumerated = source
        self._next_pass_ns: int | None = None
        self._is_asking = self._ends = False

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state(_STATE, saved_shape(self._source))

    def open(self) -> None:
        self._begin_source()
        saved = [SavedSplit(*element) for element in self._state.get()]
        restored = [one for one in saved if one.id != NO_SPLIT]
        self._each_once(restored)
        self._splits = [RunningSplit(one.id, one.position) for one in restored]
        self._unfinished = list(self._splits)
        if self._strategy is not None and self._strategy.emits:
            self._open_watermarks(self._strategy, saved)
        if not self._splits:
            self._ask()
        self._plan_pass()

    def _timed_splits(self) -> list[str]:
        return super()._timed_splits() or [NO_SPLIT]

    def snapshot_state(self, checkpoint_id: int) -> None:
        saved = [self._save(split) for split in self._unfinished]
        self._note_positions(checkpoint_id, saved)
        if not saved and self._emitter is not None:
            saved = [self._save(RunningSplit(NO_SPLIT))]
        self._state.update([tuple(one) for one in saved])

    def fingerprint(self) -> object:
        now_ns = self.context.processing_time_ns()
        next_pass = None if self._next_pass_ns is None else self._next_pass_ns - now_ns
        return (super().fingerprint(), self._is_asking, self._ends, next_pass)

    # --- splits -------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._is_asking = True
        self.context.send_to_coordinator((REQUEST,))

    def on_coordinator_event(self, event: Any) -> None:
        kind, *content = event
        if kind == SPLIT:
            self._is_asking = False
            assigned = FileSourceSplit(*content[0])
            self.context.metrics.count("numSplitsAssigned")
            self._add_split(RunningSplit(assigned.id, assigned.position))
        elif kind == NO_MORE_SPLITS:
            self._is_asking, self._ends = False, True
        else:
            assert kind == LIST, event
            splits = self._enumerated.enumerate_splits(self._source_context, is_first=True)
            self.context.send_to_coordinator((LISTED, plain_splits(splits)))

    def _finish_split(self, split: RunningSplit, reader: SplitReader, now_ns: int) -> None:
        if self._emitter is not None and len(self._unfinished) == 1:
            # Otherwise the watermark of a split that begins and ends between two grid points would never be emitted.
            periodic = self._emitter.periodic
            periodic.add_split(NO_SPLIT, now_ns, periodic.generator_snapshot(split.id))
        super()._finish_split(split, reader, now_ns)
        self.context.metrics.count("numSplitsProcessed")
        self._splits.remove(split)
        if not self._ends and not self._is_asking:
            self._ask()

    def slice_limit(self, records: int) -> int:
        """Up to the end of what the reader has read ahead. Otherwise each end of a split would cost the virtual time of
        a whole batch, and the assignment of splits to readers would depend on the size of batches."""
        while self._unfinished:
            split = self._unfinished[0]
            if split.reader is None:
                self._open_split(split)
            assert split.reader is not None
            ready = getattr(split.reader, "ready", None)
            if ready is None:
                return records
            count: int = ready()
            if count:
                return min(records, count)
            self._finish_split(split, split.reader, self.context.processing_time_ns())
        return 0

    def _may_go_on(self) -> bool:
        return bool(self._unfinished) or not self._ends

    def available_at_ns(self, now_ns: int) -> int | None:
        return super().available_at_ns(now_ns) if self._unfinished else None

    # --- discovery ----------------------------------------------------------------------------------------

    def _plan_pass(self) -> None:
        interval_ms = self._enumerated.monitor_interval_ms
        if interval_ms is not None and self.context.subtask == LISTING_READER:
            self._next_pass_ns = self.context.processing_time_ns() + interval_ms * 1_000_000
            self.context.register_processing_timer_ns(self._next_pass_ns)

    def on_processing_time_ns(self, time_ns: int) -> None:
        if self._next_pass_ns is not None and self._next_pass_ns <= self.context.processing_time_ns():
            self._discover()
            self._plan_pass()
        super().on_processing_time_ns(time_ns)

    def _discover(self) -> None:
        try:
            splits = self._enumerated.enumerate_splits(self._source_context, is_first=False)
        except (OSError, ConfigurationError):
            self.context.metrics.count("numEnumerationsFailed")
            return
        self.context.send_to_coordinator((DISCOVERED, plain_splits(splits)))
