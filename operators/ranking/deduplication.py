"""Deduplication: one record for each key (Flink: ``ProcTimeDeduplicateKeepFirstRowFunction`` and its siblings).

| keep, time | emitted | when |
|---|---|---|
| first, processing | the record itself, once | as it comes |
| last, processing | changes: ``+I``, then ``-U`` and ``+U`` with every record | as it comes |
| first, event | changes, when a record with a lesser time comes | as it comes |
| first, event, append only | the record itself, once | when the watermark has reached its time |
| last, event | changes, when a record with the same or a greater time comes | as it comes |

Rules.

* By event time, records with the same time are ordered by their arrival.
* Append only: a record whose time the watermark has passed is dropped (``numLateRecordsDropped``), because an earlier
  one may have been emitted and forgotten. For each key the state stores that a record was emitted.
* With a time-to-live a key is forgotten that long after its last write; its next record is a first record again.
* A batch costs one read and one write of state, even with many records of one key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.operator import Operator
from operators.ranking.change_records import INSERT, UPDATE_AFTER, UPDATE_BEFORE
from operators.time import EventClock, missing_timestamps
from state_backends.base import StateTtlConfig, ValueStateDescriptor

FIRST, LAST = "first", "last"
PROCESSING, EVENT = "processing", "event"


class _Deduplicate(Operator):
    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl = None if ttl_ms is None else StateTtlConfig(ttl_ms)

    def initialize_state(self) -> None:
        descriptor = ValueStateDescriptor("kept", None, ttl=self._ttl)
        self._kept = self.context.keyed_backend().value_state(descriptor)

    def _kept_of(self, keys: list[Any]) -> dict[Any, Any]:
        """The kept record of each key of a batch, keys in the order of their first record."""
        distinct = list(dict.fromkeys(keys))
        return dict(zip(distinct, self._kept.get_many(distinct), strict=True))


class KeepFirstOperator(_Deduplicate):
    """The first record of a key by processing time: it is emitted, and later records of its key are not."""

    def process_batch(self, batch: Batch) -> None:
        keys = batch.keys
        assert keys is not None, "deduplication needs key_by before it"
        seen = self._kept_of(keys)
        chosen: list[int] = []
        fresh: dict[Any, bool] = {}
        for position, key in enumerate(keys):
            if not seen[key]:
                seen[key] = fresh[key] = True
                chosen.append(position)
        if chosen:
            self._kept.update_many(list(fresh), list(fresh.values()))
            first = batch.take(chosen)
            self.output.emit(Batch(first.values, first.timestamps))


class KeepBestOperator(_Deduplicate):
    """The best record of each key so far: the last by processing time, the first or last by event time."""

    def __init__(self, keep: str, time: str, ttl_ms: int | None) -> None:
        super().__init__(ttl_ms)
        self._keep = keep
        self._time = time

    def process_batch(self, batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        if not batch:
            return
        assert keys is not None, "deduplication needs key_by before it"
        times: list[int] | None = None
        if self._time == EVENT:
            if stamps is None:
                raise missing_timestamps(self)
            times = stamps
        kept = self._kept_of(keys)
        written: dict[Any, Any] = {}
        out: list[Any] = []
        out_stamps: list[int] = []
        keeps_last = self._keep == LAST
        for position, (key, value) in enumerate(zip(keys, batch.values, strict=True)):
            time_ms = 0 if times is None else times[position]
            before = kept[key]
            if before is None:
                out.append((INSERT, value))
            elif (before[0] <= time_ms) if keeps_last else (time_ms < before[0]):
                out += [(UPDATE_BEFORE, before[1]), (UPDATE_AFTER, value)]
            else:
                continue
            kept[key] = written[key] = (time_ms, value)
            if stamps is not None:
                out_stamps += [stamps[position]] * (len(out) - len(out_stamps))
        if written:
            self._kept.update_many(list(written), list(written.values()))
            self.output.emit(Batch(out, None if stamps is None else out_stamps))


class FirstByWatermarkOperator(_Deduplicate):
    """The first record of a key by event time, emitted once an earlier one can no longer come."""

    def initialize_state(self) -> None:
        super().initialize_state()
        self._timers = self.context.keyed_backend().timer_service("first-record-timers")
        self._clock = EventClock(self.context)

    def process_batch(self, batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        if not batch:
            return
        assert keys is not None, "deduplication needs key_by before it"
        if stamps is None:
            raise missing_timestamps(self)
        watermark_ms = self._clock.watermark_ms
        kept = self._kept_of(keys)
        written: dict[Any, Any] = {}
        late = 0
        for key, time_ms, value in zip(keys, stamps, batch.values, strict=True):
            before = kept[key]
            if time_ms <= watermark_ms:
                late += 1
            elif before is None or (not before[0] and time_ms < before[1]):
                kept[key] = written[key] = (False, time_ms, value)
        if written:
            self._kept.update_many(list(written), list(written.values()))
            times = [time_ms for _, time_ms, _ in written.values()]
            self._timers.event_time.register(list(written), [None] * len(times), times)
        if late:
            self.context.metrics.count("numLateRecordsDropped", late)

    def process_watermark(self, timestamp_ms: int) -> None:
        self._clock.advance(timestamp_ms)
        due = self._timers.event_time.pop_due(self._clock.watermark_ms)
        keys = [key for _, key, _ in due]
        out: list[Any] = []
        out_stamps: list[int] = []
        gone: list[Any] = []
        for (time_ms, key, _), kept in zip(due, self._kept.get_many(keys), strict=True):
            # The timer of a replaced record finds its replacement. An expired record is not emitted any more.
            if kept is not None and not kept[0] and kept[1] == time_ms:
                out.append(kept[2])
                out_stamps.append(time_ms)
                gone.append(key)
        if out:
            # The record itself is not needed any more: all records from now on are later, or late.
            self._kept.update_many(gone, [(True, None, None)] * len(gone))
            self._emit(gone, out, out_stamps)
        self.output.emit_watermark(self._clock.watermark_ms)

    def _emit(self, keys: list[Any], out: list[Any], stamps: list[int]) -> None:
        if self.lineage is None:
            self.output.emit(Batch(out, stamps))
            return
        for key, value, stamp in zip(keys, out, stamps, strict=True):
            self.lineage.emitting(key)
            self.output.emit(Batch([value], [stamp]))
            self.lineage.emitted()

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._clock.snapshot()

    def fingerprint(self) -> object:
        return self._clock.watermark_ms


def deduplicator(keep: str, time: str, append_only: bool, ttl_ms: int | None) -> Callable[[], Operator]:
    """The factory of operators of ``KeyedStream.deduplicate``. Raises :class:`ConfigurationError`."""
    if keep not in (FIRST, LAST):
        raise ConfigurationError(f"deduplicate: keep must be 'first' or 'last', got {keep!r}")
    if time not in (PROCESSING, EVENT):
        raise ConfigurationError(f"deduplicate: time must be 'processing' or 'event', got {time!r}")
    if append_only and keep == LAST:
        raise ConfigurationError(
            "deduplicate: the last record of a key is never known for certain, so it cannot be append_only\n"
            "  keep the first one, or take a window"
        )
    if ttl_ms is not None:
        StateTtlConfig(ttl_ms)
    if keep == FIRST and time == PROCESSING:
        return partial(KeepFirstOperator, ttl_ms)
    if append_only:
        return partial(FirstByWatermarkOperator, ttl_ms)
    return partial(KeepBestOperator, keep, time, ttl_ms)
