"""The operator that reads a source: splits, turns, event times, watermarks, positions in state.

The choice of the next split must not depend on the batch size, or a run with batches of 1 would mix the splits
differently from one with batches of 4096. So splits take *turns* of a fixed number of records, for any cut into
batches. The rest of a turn is part of the snapshot. When one split is left it has all turns.

For the same reason a batch ends when a split has no record available: its next time must be asked for at the virtual
time after the cost of the records before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch, concatenated
from engine.elements.errors import JobChangedError, MalformedStateError, WeirError, check_whole, shorten
from engine.elements.operator import Operator, OperatorFactory
from engine.elements.source import AckingListener, Source, SourceCheckpointListener, SplitReader
from operators.sources.source_context import CompletedPositions, OperatorSourceContext
from operators.sources.source_splits import NO_SPLIT, RunningSplit, SavedSplit, saved_shape
from operators.time import (
    Idleness,
    WatermarkEmitter,
    WatermarkStrategy,
    missing_timestamps,
    stamp,
    times_for_watermarks,
)
from state_backends.base import list_of, text

DEFAULT_RECORDS_PER_TURN = 256

_STATE = "splits"
_STARTED = "source-started"


class SourceOperator(Operator):
    """Reads the splits ``i`` with ``i mod parallelism == subtask`` of a source.

    It has no input: the runtime calls ``emit_next`` whenever the task may produce records, and asks
    ``available_at_ns`` when there were none. After a restore it continues the splits of the checkpoint at their
    positions, and reads splits added since from their beginning.
    """

    takes_turns = True
    """Whether splits are read side by side, or one after the other."""
    opens_splits = True
    """Whether it opens the splits of its source."""

    def __init__(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        *,
        records_per_turn: int = DEFAULT_RECORDS_PER_TURN,
    ) -> None:
        check_whole("records_per_turn", records_per_turn)
        self._source = source
        self._strategy = watermark_strategy
        self._records_per_turn = records_per_turn
        self._splits: list[RunningSplit] = []
        self._unfinished: list[RunningSplit] = []
        self._turn = 0
        self._emitter: WatermarkEmitter | None = None
        self._repeat_watermark = False
        self._completed: CompletedPositions | None = None
        self.on_read: Callable[[str, int | None], None] | None = None
        """Called with the split of records before they are emitted, if it is set, and when they were due, if their
        reader knows that (``due_ns``)."""
        self.begin_at: Mapping[str, tuple[Any, bool]] = {}
        """Where to begin without a checkpoint, by split: a position, and whether nothing is left to read. Set it before
        ``open``."""

    # --- life cycle ---------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        backend = self.context.operator_backend()
        self._state = backend.list_state(_STATE, saved_shape(self._source))
        self._started = backend.union_list_state(_STARTED, list_of(text))

    def open(self) -> None:
        self._begin_source()
        ids = self._source.splits(self._source_context)
        saved = [SavedSplit(*element) for element in self._state.get()] or self._begun(ids)
        # The splits that all subtasks of the checkpoint had read together; empty if this operator was not in it.
        known = {split: None for known_splits in self._started.get() for split in known_splits}
        known |= self._each_once(saved)
        refuse_changed = getattr(self._source, "refuse_changed_splits", None)
        if refuse_changed is not None:
            refuse_changed(known, ids, self._source_context)
        self._refuse_lost(saved, ids)
        self._splits = [RunningSplit(one.id, one.position, one.finished, one.turn_left) for one in saved]
        # Splits added since the checkpoint are new as a whole, even if a new job would begin elsewhere in them.
        beginning = getattr(self._source, "gained_position", None) if known else None
        known |= dict.fromkeys(self.begin_at)
        grown = getattr(self._source, "grown_splits", None)
        if known and grown is not None:
            again = grown(known, ids)
            for split in self._splits:
                split.finished = split.finished and split.id not in again
        mine = ids[self.context.subtask :: self.context.parallelism]
        self._splits += [RunningSplit(split_id, beginning) for split_id in mine if split_id not in known]
        self._unfinished = [split for split in self._splits if not split.finished]
        self._open_turns()
        if self._strategy is not None and self._strategy.emits:
            self._open_watermarks(self._strategy, saved)

    def _begin_source(self) -> None:
        self._source_context = OperatorSourceContext(self)
        make = getattr(self._source, "checkpoint_listener", None)
        listener: SourceCheckpointListener | None = None if make is None else make(self._source_context)
        if listener is not None:
            self._completed = CompletedPositions(listener)

    def _begun(self, ids: Sequence[str]) -> list[SavedSplit]:
        """This subtask's splits that begin at a position from outside a checkpoint, and splits that no subtask has."""
        mine = ids[self.context.subtask :: self.context.parallelism]
        return [
            SavedSplit(split, position, finished, 0, None, None, MIN_TIMESTAMP_MS, 0)
            for split, (position, finished) in self.begin_at.items()
            if split in mine or split not in ids
        ]

    def _each_once(self, saved: list[SavedSplit]) -> dict[str, None]:
        """The ids of restored splits. A repeated one is an error, because its records would be read twice."""
        ids = dict.fromkeys(one.id for one in saved)
        checkpoint_id = self.context.restored_checkpoint_id()
        if len(ids) < len(saved) and checkpoint_id is not None:
            raise MalformedStateError(self.context.uid, checkpoint_id, "it has a split twice")
        return ids if checkpoint_id is not None else {}

    def _refuse_lost(self, saved: list[SavedSplit], ids: Sequence[str]) -> None:
        """Raise an error for a split that was not read to its end and that the source no longer has: lost input."""
        lost = [one.id for one in saved if not one.finished and one.id not in ids]
        if lost:
            raise JobChangedError(
                f"source {self.context.name!r} was reading {', '.join(lost)}, which it does not have any more\n"
                f"  it has: {', '.join(ids[:10])}{', …' if len(ids) > 10 else ''}\n"
                "  bring the missing input back, or start the job anew in another storage directory"
            )

    def _open_turns(self) -> None:
        # The split in the middle of its turn goes on. (Several, when splits of several subtasks met here.)
        in_turn = [at for at, split in enumerate(self._unfinished) if split.turn_left]
        self._turn = in_turn[0] if in_turn else 0
        for at in in_turn[1:]:
            self._unfinished[at].turn_left = 0
        if not in_turn:
            self._begin_turn()

    def _open_watermarks(self, strategy: WatermarkStrategy, saved: list[SavedSplit]) -> None:
        emitter = self._emitter = WatermarkEmitter(self, strategy)
        now_ns = self.context.processing_time_ns()
        if saved:
            # If splits of several subtasks came together here, take the least watermark.
            last_ms = min(one.last_watermark_ms for one in saved)
            emitter.periodic.restore(last_ms, min(one.until_next_watermark_ns for one in saved), now_ns)
            self._repeat_watermark = True
        generators = {one.id: one.generator for one in saved}
        for split_id in self._timed_splits():
            emitter.periodic.add_split(split_id, now_ns, generators.get(split_id))
        idleness = {one.id: None if one.idleness is None else Idleness(*one.idleness) for one in saved}
        emitter.periodic.restore_idleness(idleness, now_ns)
        emitter.periodic.expect_records(now_ns)
        emitter.arm()

    def _add_split(self, split: RunningSplit) -> None:
        """Take up a split that was not there when the operator was opened."""
        had_none = not self._unfinished
        self._splits.append(split)
        self._unfinished.append(split)
        if had_none and self.takes_turns:
            self._begin_turn()
        if self._emitter is not None:
            now_ns = self.context.processing_time_ns()
            periodic = self._emitter.periodic
            periodic.add_split(split.id, now_ns)
            if had_none:
                periodic.remove_split(NO_SPLIT, now_ns)
            if periodic.idle:
                # Otherwise the next point of the grid would find a split that is not idle, and would not report it.
                periodic.idle = False
                self.output.emit_watermark_status(False)
            self._emitter.arm()

    def _timed_splits(self) -> list[str]:
        """The splits with a watermark of their own."""
        return [split.id for split in self._unfinished]

    def snapshot_state(self, checkpoint_id: int) -> None:
        # The position after the last record that was sent (mutant "offset one late").
        saved = [self._save(split) for split in self._splits]
        self._state.update([tuple(one) for one in saved])
        self._started.update([[one.id for one in saved]])
        self._note_positions(checkpoint_id, saved)

    def _note_positions(self, checkpoint_id: int, saved: Sequence[SavedSplit]) -> None:
        if self._completed is not None:
            self._completed.note(checkpoint_id, ((one.id, one.position) for one in saved))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._completed is not None:
            self._completed.completed(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._completed is not None:
            self._completed.aborted(checkpoint_id)

    def _save(self, split: RunningSplit) -> SavedSplit:
        position = split.position if split.reader is None else split.reader.position()
        if self._emitter is None:
            return SavedSplit(split.id, position, split.finished, split.turn_left, None, None, MIN_TIMESTAMP_MS, 0)
        periodic, now_ns = self._emitter.periodic, self.context.processing_time_ns()
        idleness = None if split.finished else periodic.idleness_snapshot(split.id, now_ns)
        return SavedSplit(
            split.id,
            position,
            split.finished,
            split.turn_left,
            None if split.finished else periodic.generator_snapshot(split.id),
            None if idleness is None else (*idleness,),
            periodic.last_emitted_ms,
            periodic.until_next_ns(now_ns),
        )

    def close(self) -> None:
        if self._completed is not None:
            self._completed.close()
            self._completed = None
        for split in self._splits:
            if split.reader is not None:
                split.reader.close()
                split.reader = None

    def abandon(self) -> None:
        self.close()

    def fingerprint(self) -> object:
        now_ns = self.context.processing_time_ns()
        splits = [
            (tuple(self._save(split)), split.available_at_ns and split.available_at_ns - now_ns)
            for split in self._splits
        ]
        watermarks = None if self._emitter is None else self._emitter.periodic.fingerprint(now_ns)
        return tuple(splits), watermarks, self._completed and self._completed.fingerprint()

    # --- reading ------------------------------------------------------------------------------------------

    def emit_next(self, max_records: int) -> int | None:
        """Emit up to ``max_records`` (>= 1) records. Returns how many; 0 when there are none now; ``None`` when
        all splits have ended."""
        splits = self._unfinished
        if self._emitter is None and len(splits) == 1:
            return self._emit_alone(splits[0], max_records)
        if self._repeat_watermark and self._emitter is not None:
            self._repeat_watermark = False
            self._emitter.emit_again()
        return self._emit_turns(max_records, [])

    def _emit_alone(self, split: RunningSplit, max_records: int) -> int | None:
        """The same of a single split without watermarks, which takes no turns."""
        at_ns = split.available_at_ns
        if at_ns is None or at_ns <= self.context.processing_time_ns():
            piece = self._read(split, max_records, 0, alone=True)
            if piece is not None and piece.size == max_records:
                self.output.emit(piece)
                return max_records
            if piece is None or piece.size:
                return self._emit_turns(max_records, [] if piece is None else [piece])
            self._wait(split, self.context.processing_time_ns())
            if split.available_at_ns is None:
                # It reports that there are records after all.
                return self._emit_turns(max_records, [])
        return 0 if self._may_go_on() else None

    def _emit_turns(self, max_records: int, pieces: list[Batch]) -> int | None:
        """Emit records that were read already, and further ones of all splits, by turns."""
        now_ns = self.context.processing_time_ns()
        emitted = sum([piece.size for piece in pieces])
        while emitted < max_records and (split := self._next_split(now_ns)) is not None:
            alone = len(self._unfinished) == 1 or not self.takes_turns
            piece = self._read(split, max_records - emitted, now_ns, alone=alone)
            if piece is None:
                continue
            if piece.size:
                pieces.append(piece)
                emitted += piece.size
            else:
                if pieces:
                    break
                self._wait(split, now_ns)
        if pieces:
            self.output.emit(pieces[0] if len(pieces) == 1 else _joined(pieces))
        if self._emitter is not None:
            self._emitter.arm()
        return emitted if emitted or self._may_go_on() else None

    def slice_limit(self, records: int) -> int:
        """How many of the next ``records`` records must be paid for before the next decision; 0: no record is available
        now."""
        return records

    def _may_go_on(self) -> bool:
        return bool(self._unfinished)

    def available_at_ns(self, now_ns: int) -> int | None:
        """When it is worth calling ``emit_next`` again; ``None``: not before the operator's coordinator has sent
        something."""
        times = [split.available_at_ns or now_ns for split in self._unfinished]
        return max(now_ns, min(times, default=now_ns))

    def acking_listener(self) -> AckingListener | None:
        """The source's listener to acknowledgements, if it wants one. Ask after ``open``."""
        make = getattr(self._source, "acking_listener", None)
        listener: AckingListener | None = None if make is None else make(self._source_context)
        return listener

    def positions(self) -> dict[str, tuple[Any, bool]]:
        """For each split of this subtask: the position after the last record read, and whether none is left."""
        return {split.id: (self.position_of(split.id), split.finished) for split in self._splits}

    def position_of(self, split_id: str) -> Any:
        """The position after the last record that was read of a split."""
        split = next(split for split in self._splits if split.id == split_id)
        return split.position if split.reader is None else split.reader.position()

    def on_processing_time_ns(self, time_ns: int) -> None:
        if self._emitter is not None:
            expected = self.available_at_ns(time_ns) if self._unfinished else None
            self._emitter.on_time(time_ns, expected)

    def _next_split(self, now_ns: int) -> RunningSplit | None:
        """The split whose turn it is; splits without available records lose their turn."""
        for _ in self._unfinished:
            split = self._unfinished[self._turn]
            if split.available_at_ns is None or split.available_at_ns <= now_ns:
                return split
            self._end_turn()
        return None

    def _begin_turn(self) -> None:
        if self._unfinished:
            self._turn %= len(self._unfinished)
            self._unfinished[self._turn].turn_left = self._records_per_turn

    def _end_turn(self) -> None:
        self._unfinished[self._turn].turn_left = 0
        self._turn += 1
        self._begin_turn()

    def _read(self, split: RunningSplit, room: int, now_ns: int, *, alone: bool) -> Batch | None:
        """Records of the split whose turn it is: an empty batch when there are none now, ``None`` when it has
        ended. ``alone``: its turns have no end."""
        reader = split.reader
        if reader is None:
            reader = self._open_split(split)
        batch = reader.read(room if alone else min(room, split.turn_left))
        split.available_at_ns = None
        if batch is None:
            self._finish_split(split, reader, now_ns)
        elif batch.size:
            split.asked_again = False
            if self.on_read is not None:
                self.on_read(split.id, getattr(reader, "due_ns", None))
            if not alone:
                split.turn_left -= batch.size
                if split.turn_left == 0:
                    self._end_turn()
            return batch if self._strategy is None else self._stamped(split, batch)
        return batch

    def _open_split(self, split: RunningSplit) -> SplitReader:
        """Raises :class:`MalformedStateError` when the source fails on the restored position."""
        checkpoint_id = self.context.restored_checkpoint_id()
        try:
            split.reader = self._source.open_split(split.id, split.position, self._source_context)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            if checkpoint_id is None or split.position is None or isinstance(error, WeirError):
                raise
            what = f"position {shorten(split.position)} of split {split.id!r}: {type(error).__name__}: {error}"
            raise MalformedStateError(self.context.uid, checkpoint_id, what) from error
        return split.reader

    def _finish_split(self, split: RunningSplit, reader: SplitReader, now_ns: int) -> None:
        split.position, split.finished, split.turn_left = reader.position(), True, 0
        reader.close()
        split.reader = None
        self._unfinished.remove(split)
        self._begin_turn()
        if self._emitter is not None:
            self._emitter.periodic.remove_split(split.id, now_ns)

    def _wait(self, split: RunningSplit, now_ns: int) -> None:
        """The split in turn had no record: find out when it will have some, and go on with the next split."""
        assert split.reader is not None
        at_ns = split.reader.available_at_ns(now_ns)
        if at_ns <= now_ns:
            if split.asked_again:
                problem = ValueError("available_at_ns() says there are records, read() returns none")
                raise self.user_error("source reader", split.id, problem) from problem
            split.asked_again = True
            return
        split.available_at_ns, split.asked_again = at_ns, False
        if len(self._unfinished) > 1:
            # The runtime cuts batches at timers, so the other splits stop here to let this one have its turn.
            self.context.register_processing_timer_ns(at_ns)
        if self._emitter is not None:
            self._emitter.periodic.expect_records(at_ns)
        self._end_turn()

    def _stamped(self, split: RunningSplit, batch: Batch) -> Batch:
        """``batch`` with event times, known to the watermark generator of its split."""
        strategy = self._strategy
        assert strategy is not None
        if strategy.timestamp_fn is not None:
            batch = Batch(batch.values, stamp(self, strategy.timestamp_fn, batch.values))
        if self._emitter is not None:
            times = times_for_watermarks(batch)
            if times is None:
                raise missing_timestamps(self)
            self._emitter.before_records(split.id, times)
        return batch


def _joined(pieces: list[Batch]) -> Batch:
    columnar = [piece for piece in pieces if isinstance(piece, ColumnBatch)]
    if len(columnar) == len(pieces):
        return concatenated(columnar)
    values = list(chain.from_iterable(piece.values for piece in pieces))
    stamps = [piece.timestamps for piece in pieces if piece.timestamps is not None]
    return Batch(values, list(chain.from_iterable(stamps)) if len(stamps) == len(pieces) else None)


def source_of(factory: object) -> Source | None:
    """The source that opens the splits for the operators of this factory; ``None`` if it does not make source
    operators."""
    if isinstance(factory, partial) and getattr(factory.func, "opens_splits", False):
        opener: Source = factory.args[0]
        return opener
    return getattr(factory, "opens", None)


def reading_from(factory: Any, source: Source) -> OperatorFactory:
    """The same source operators with another source that opens splits and reads them in its own way."""
    if isinstance(factory, partial):
        return partial(factory.func, source, *factory.args[1:], **factory.keywords)
    made: OperatorFactory = factory.opening(source)
    return made
