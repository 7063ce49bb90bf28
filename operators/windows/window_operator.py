"""Tumbling and sliding event-time windows over a keyed stream, a batch at a time (Flink: ``WindowOperator`` with
``EventTimeTrigger``). Windows of other kinds, and other triggers, are in ``triggered_windows``.

Rules, for a window with greatest timestamp ``m``, allowed lateness ``l`` and current watermark ``w``:

* ``m + l <= w``        the window is gone: the record is dropped (``numLateRecordsDropped``) or goes to the side
                        output for late records;
* ``m <= w < m + l``    the window has fired: the record is added and the window fires again at once;
* ``w < m``             the record is added; the window fires when the watermark reaches ``m``;
* at ``m + l``          the window is forgotten.

Results carry the timestamp ``m``. They are emitted before the watermark that caused them, ordered by window end and
then by the encoded key: the order is a function of the state, not of its history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, repeat
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError, StateError, WeirError, check_whole
from engine.elements.operator import Operator
from operators.basic import AggregateFunction, refuse_none
from operators.time import EventClock, missing_timestamps
from operators.windows.assigners import SlidingEventTimeWindows, TimeWindow, TumblingEventTimeWindows
from operators.windows.contents import window_contents
from state_backends.base import StateSerializationError

WindowFunction = Callable[[Any, TimeWindow, Any], Any]


def check_window_spec(operator: Operator, restored: Sequence[Any], spec: Any) -> None:
    """Refuse a checkpoint whose windows differ from the job's: they would never fire, or at the wrong time.

    ``restored`` holds the ``spec`` that each subtask wrote: (size, offset) for tumbling event-time windows, and for all
    others a text with all settings.
    """
    for other in restored:
        if other != spec:
            raise JobChangedError(
                f"operator {operator.context.name!r} has {_spec_text(spec)}, its checkpoint has {_spec_text(other)}\n"
                "  restore with the windows as they were, or give the operator another uid to begin with empty windows"
            )


def _spec_text(spec: Any) -> str:
    return spec if isinstance(spec, str) else f"windows of {spec[0]} ms (offset {spec[1]} ms)"


class WindowOperator(Operator):
    """Groups the records of each key by window and emits one result per window.

    ``aggregate``            an ``AggregateFunction``, a reduce function ``(a, b) -> a``, or ``None`` for the list of
                             all records as the result;
    ``window_function``      ``(key, window, result) -> record``; without one the record is
                             ``(key, window.start, window.end, result)``;
    ``allowed_lateness_ms``  how long a window that has fired is kept for late records;
    ``late_tag``             side output for records that come even later; ``None`` drops them;
    ``process_function``     ``(key, window, result) -> records``, instead of ``window_function``.
    """

    def __init__(
        self,
        assigner: TumblingEventTimeWindows | SlidingEventTimeWindows,
        aggregate: AggregateFunction | Callable[[Any, Any], Any] | None,
        window_function: WindowFunction | None = None,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
        *,
        process_function: Callable[[Any, TimeWindow, Any], Iterable[Any] | None] | None = None,
    ) -> None:
        check_whole("allowed_lateness_ms", allowed_lateness_ms, 0)
        if window_function is not None and process_function is not None:
            raise ConfigurationError("give a window either a window_function or a process_function, not both")
        self._assigner = assigner
        self._aggregate = aggregate
        self._window_function = window_function
        self._process_function = process_function
        self._allowed_lateness_ms = allowed_lateness_ms
        self._late_tag = late_tag

    def initialize_state(self) -> None:
        backend = self.context.keyed_backend()
        self._timers = backend.timer_service("window-timers")
        # Each window in the state has a timer, at its end or later.
        last_ms = self._timers.event_time.last_time()
        restored_until = None if last_ms is None else last_ms - self._assigner.size_ms + 1
        self._contents = window_contents(backend, self._aggregate, restored_until)
        self._clock = EventClock(self.context)
        self._spec_state = self.context.operator_backend().union_list_state("window-spec")
        # The state contains only the starts of windows, so they must be windows of this job.
        check_window_spec(self, self._spec_state.get(), self._spec())

    def _spec(self) -> Any:
        return self._assigner.size_ms, self._assigner.offset_ms

    def process_batch(self, batch: Batch) -> None:
        if not batch:
            return
        values, stamps, keys = batch.values, batch.timestamps, batch.keys
        assert keys is not None, "a window operator needs key_by before it"
        if stamps is None:
            raise missing_timestamps(self)
        refuse_none(self, values)
        self._assign(keys, values, stamps)

    def _assign(self, keys: list[Any], values: list[Any], stamps: list[int]) -> None:
        """Add the records to their windows."""
        assert isinstance(self._assigner, TumblingEventTimeWindows)
        first, last = self._assigner.starts([min(stamps), max(stamps)])
        starts = [first] * len(stamps) if first == last else self._assigner.starts(stamps)
        if first + self._assigner.size_ms - 1 > self._clock.watermark_ms:
            self._add_in_time(keys, starts, values)
        else:
            gone = self._add_with_late_ones(keys, starts, values)
            if any(gone):
                self._drop(Batch(list(compress(values, gone)), list(compress(stamps, gone))))

    def _add_in_time(self, keys: Sequence[Any], starts: Sequence[int], values: Sequence[Any]) -> None:
        """Add records to windows that have not fired yet."""
        try:
            windows = self._contents.add_in_time(keys, starts, values)
        except Exception as error:
            raise self._failure(values, error) from error
        self._register_ends(*windows)
        self._write_out_if_full()

    def _write_out_if_full(self) -> None:
        if self._contents.is_full:
            self._register_ends(*self._written_out())

    def _written_out(
        self, starts: Iterable[int] | None = None, *, close: bool = True
    ) -> tuple[Sequence[Any], Sequence[int]]:
        """Bring open windows into the state, these or all; returns their keys and starts, which may have no timers."""
        try:
            return self._contents.write_out(starts, close=close)
        except StateSerializationError as error:
            raise StateError(f"operator {self.context.name!r}: {error}") from error

    def _register_ends(self, keys: Sequence[Any], starts: Sequence[int]) -> None:
        last = self._assigner.size_ms - 1
        self._timers.event_time.register(keys, starts, [start + last for start in starts])

    def _add_with_late_ones(self, keys: list[Any], starts: list[int], values: list[Any]) -> list[bool]:
        """The same when some windows have fired already, or are forgotten; returns which are forgotten."""
        watermark_ms, lateness_ms = self._clock.watermark_ms, self._allowed_lateness_ms
        last = self._assigner.size_ms - 1
        fired = [start + last <= watermark_ms for start in starts]
        gone = [self._assigner.cleanup_time(start, lateness_ms) <= watermark_ms for start in starts]
        in_time = [not one for one in fired]
        if any(in_time):
            self._add_in_time(*(list(compress(column, in_time)) for column in (keys, starts, values)))
        again = [was_fired and not is_gone for was_fired, is_gone in zip(fired, gone, strict=True)]
        if any(again):
            self._fire_again(*(list(compress(column, again)) for column in (keys, starts, values)))
        return gone

    def _fire_again(self, keys: list[Any], starts: list[int], values: list[Any]) -> None:
        """Late records within the allowed lateness: each emits a new result of its window at once."""
        self._register_cleanup(keys, starts)
        out: list[Any] = []
        out_stamps: list[int] = []
        for key, start, value in zip(keys, starts, values, strict=True):
            try:
                self._contents.add_many((key,), (start,), (value,))
            except Exception as error:
                raise self._failure((value,), error) from error
            self._append_results([key], [start], out, out_stamps)
        self._emit(out, out_stamps)

    def _register_cleanup(self, keys: Sequence[Any], starts: Sequence[int]) -> None:
        times = [self._assigner.cleanup_time(start, self._allowed_lateness_ms) for start in starts]
        self._timers.event_time.register(keys, starts, times)

    def _drop(self, late: Batch) -> None:
        if self._late_tag is None:
            self.context.metrics.count("numLateRecordsDropped", len(late))
        else:
            self.output.emit_side(self._late_tag, late)

    def _failure(self, values: Sequence[Any], error: Exception) -> WeirError:
        """The error to raise when a function of the user failed on one of these records."""
        return self.user_error(self._contents.what, values[self._contents.failed_index], error)

    def process_watermark(self, timestamp_ms: int) -> None:
        self._clock.advance(timestamp_ms)
        watermark_ms = self._clock.watermark_ms
        times, keys, starts = self._due(watermark_ms)
        if keys:
            self._fire(times, keys, starts, watermark_ms)
        self.output.emit_watermark(watermark_ms)

    def _due(self, watermark_ms: int) -> tuple[Sequence[int], Sequence[Any], Sequence[int]]:
        """The timers up to the watermark in firing order, even those that open windows have not registered: their
        times, keys and window starts."""
        queue, last = self._timers.event_time, self._assigner.size_ms - 1
        ended: dict[int, Sequence[Any]] = {}
        for start, open_keys, is_whole in self._contents.open_windows(watermark_ms - last):
            if is_whole:
                ended[start] = open_keys
            else:
                self._register_ends(open_keys, [start] * len(open_keys))
        due = queue.pop_due(watermark_ms, in_order=not ended)
        if due and ended:
            due = [one for one in due if one[2] not in ended]
            if due:
                whole = ((start + last, key, start) for start, open_keys in ended.items() for key in open_keys)
                due = queue.in_firing_order([*due, *whole])
        if due:
            times, keys, starts = zip(*due, strict=True)
            return times, keys, starts
        ordered: list[Any] = []
        all_starts: list[int] = []
        for start in sorted(ended):
            ordered += queue.keys_in_firing_order(ended[start])
            all_starts += [start] * len(ended[start])
        return [start + last for start in all_starts], ordered, all_starts

    def _fire(self, times: Sequence[int], keys: Sequence[Any], starts: Sequence[int], watermark_ms: int) -> None:
        if self.lineage is not None and len(keys) > 1:
            for time, key, start in zip(times, keys, starts, strict=True):
                self._fire([time], [key], [start], watermark_ms)
            return
        assigner, lateness_ms = self._assigner, self._allowed_lateness_ms
        last = assigner.size_ms - 1
        is_end = [time == start + last for time, start in zip(times, starts, strict=True)]
        ended = (keys, starts) if all(is_end) else (list(compress(keys, is_end)), list(compress(starts, is_end)))
        if ended[0]:
            out: list[Any] = []
            out_stamps: list[int] = []
            self._append_results(*ended, out, out_stamps)
            if self.lineage is not None:
                self.lineage.emitting(keys[0], starts[0])
            self._emit(out, out_stamps)
            if self.lineage is not None:
                self.lineage.emitted()
        if lateness_ms:
            # The cleanup timer is registered when the window fires: until then one timer is enough.
            pairs = zip(*ended, strict=True)
            stay = {pair: None for pair in pairs if assigner.cleanup_time(pair[1], lateness_ms) > watermark_ms}
            self._written_out({start: None for _, start in stay})
            self._register_cleanup([key for key, _ in stay], [start for _, start in stay])
            gone = [pair for pair in zip(keys, starts, strict=True) if pair not in stay]
            keys, starts = [key for key, _ in gone], [start for _, start in gone]
        self._contents.clear_many(keys, starts)

    def _append_results(
        self, keys: Sequence[Any], starts: Sequence[int], out: list[Any], out_stamps: list[int]
    ) -> None:
        """Append the results of the windows, each record with the greatest timestamp of its window."""
        size = self._assigner.size_ms
        results = self._results(keys, starts)
        if self._window_function is None and self._process_function is None:
            out.extend(zip(keys, starts, [start + size for start in starts], results, strict=True))
            out_stamps.extend([start + size - 1 for start in starts])
            return
        for key, start, result in zip(keys, starts, results, strict=True):
            produced = self._call(key, self._assigner.window(start), result)
            out.extend(produced)
            out_stamps.extend(repeat(start + size - 1, len(produced)))

    def _results(self, keys: Sequence[Any], starts: Sequence[int]) -> list[Any]:
        try:
            return self._contents.get_many(keys, starts)
        except Exception:
            # One by one, to find the failing window.
            for key, start in zip(keys, starts, strict=True):
                try:
                    self._contents.get_many([key], [start])
                except Exception as error:
                    where = {"key": key, "window": self._assigner.window(start)}
                    raise self.user_error(self._contents.what, where, error) from error
            raise

    def _call(self, key: Any, window: TimeWindow, result: Any) -> Sequence[Any]:
        try:
            if self._window_function is not None:
                return (self._window_function(key, window, result),)
            assert self._process_function is not None
            produced = self._process_function(key, window, result)
            return () if produced is None else list(produced)
        except Exception as error:
            where = {"key": key, "window": window, "result": result}
            raise self.user_error("window function", where, error) from error

    def _emit(self, out: list[Any], out_stamps: list[int]) -> None:
        if out:
            self.output.emit(Batch(out, out_stamps))

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._register_ends(*self._written_out(close=False))
        self._clock.snapshot()
        self._spec_state.update([self._spec()])

    def fingerprint(self) -> object:
        return self._clock.watermark_ms, self._contents.fingerprint()


class SlidingWindowOperator(WindowOperator):
    """The same for windows that overlap, or leave gaps: a record counts once for each of its windows.

    A record is late only if all of its windows are gone. A record in a gap between windows belongs to none. It counts
    as late only if the watermark has passed it by the allowed lateness.
    """

    def _spec(self) -> Any:
        return self._assigner.spec()

    def _assign(self, keys: list[Any], values: list[Any], stamps: list[int]) -> None:
        assert isinstance(self._assigner, SlidingEventTimeWindows)
        first, last = self._assigner.starts_of(min(stamps)), self._assigner.starts_of(max(stamps))
        if first and first == last and first[-1] + self._assigner.size_ms - 1 > self._clock.watermark_ms:
            try:
                windows = self._contents.add_to_each(keys, first, values)
            except Exception as error:
                raise self._failure(values, error) from error
            self._register_ends(*windows)
            self._write_out_if_full()
            return
        ranges = list(map(self._assigner.starts_of, stamps))
        sizes = list(map(len, ranges))
        starts = list(chain.from_iterable(ranges))
        all_keys = list(chain.from_iterable(map(repeat, keys, sizes)))
        all_values = list(chain.from_iterable(map(repeat, values, sizes)))
        watermark_ms = self._clock.watermark_ms
        gone = [False] * len(starts)
        if not starts or min(starts) + self._assigner.size_ms - 1 <= watermark_ms:
            gone = self._add_with_late_ones(all_keys, starts, all_values)
        else:
            self._add_in_time(all_keys, starts, all_values)
        if all(sizes) and not any(gone):
            return
        lost: list[bool] = []
        at = 0
        for size, stamp in zip(sizes, stamps, strict=True):
            lost.append(all(gone[at : at + size]) and stamp + self._allowed_lateness_ms <= watermark_ms)
            at += size
        if any(lost):
            self._drop(Batch(list(compress(values, lost)), list(compress(stamps, lost))))
