"""Windows of any kind over a keyed stream, with triggers, evictors and merging.

(Flink: ``WindowOperator``, ``EvictingWindowOperator``.)

``window_operator`` handles tumbling and sliding event-time windows with their default trigger, in whole batches. All
other windows are handled here, one record at a time.

Rules, for a window with greatest timestamp ``m`` and allowed lateness ``l``:

* *Cleanup time*: ``m + l`` by the watermark for event-time windows, ``m`` by the virtual clock for the others. Its
  timer (there is none at the end of time) removes contents, trigger state and timers of the window.
* A record is added to its windows whose cleanup time has not been reached, and each of their triggers decides. A record
  without such a window is *late* if its own time plus ``l`` has been reached, too: it goes to the side output for late
  records, or is counted in ``numLateRecordsDropped``. (For sessions the merged window counts.)
* A firing trigger computes the window only if it has contents. Results have timestamp ``m``, for both clocks.
* Merging: when a window joins others, the trigger's ``on_merge`` comes first, then its ``clear`` for each of the old
  windows, then their contents are moved; only then is the record added. If the merged window is past its cleanup time,
  nothing is merged and the record is late.
* Timers of the virtual clock fire once it has *passed* their millisecond (Flink: ``getProcessingTimeDelay``): a record
  of that very millisecond still belongs to the window. At the end of the input these timers do not fire: the contents
  of processing-time windows are then not emitted.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.operator import Operator
from operators.basic import own_instance, refuse_none
from operators.time import EventClock, WakeUps, missing_timestamps
from operators.windows.assigners import TimeWindow, Window, WindowAssigner
from operators.windows.cells import Aggregate, EvictableCell, WindowCell, window_cell
from operators.windows.contexts import TriggerCallContext, WindowCallContext
from operators.windows.evictors import Evictor
from operators.windows.merging import MergingWindows
from operators.windows.triggers import Trigger, TriggerResult
from operators.windows.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from operators.windows.window_operator import check_window_spec
from state_backends.api import TimerQueue
from state_backends.base import ListStateDescriptor

_TIMER_DELAY_MS = 1
"""How long after their time processing-time timers fire."""


class TriggeredWindowOperator(Operator):
    """Groups the records of each key by window, and computes windows when a trigger says so.

    ``trigger``              when a window is computed; by default the assigner's;
    ``evictor``              which records are removed then; with ``None`` only the aggregate is kept;
    ``process_function``     ``(key, window, result) -> records``, or a ``ProcessWindowFunction``;
    ``aggregate``, ``window_function``, ``allowed_lateness_ms``, ``late_tag``
                             as for ``WindowOperator``.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        aggregate: Aggregate,
        window_function: Callable[[Any, Any, Any], Any] | None = None,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
        *,
        process_function: Any = None,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
    ) -> None:
        check_whole("allowed_lateness_ms", allowed_lateness_ms, 0)
        if window_function is not None and process_function is not None:
            raise ConfigurationError("give a window either a window_function or a process_function, not both")
        self._assigner = assigner
        self._aggregate = aggregate
        self._window_function = window_function
        self._allowed_lateness_ms = allowed_lateness_ms
        self._late_tag = late_tag
        self._trigger = copy.copy(trigger) if trigger is not None else assigner.default_trigger()
        self._evictor = copy.copy(evictor)
        self._process_object = _process_object(process_function)
        self._process_function = None if self._process_object is not None else process_function
        if assigner.merges and not self._trigger.can_merge():
            raise ConfigurationError(
                f"{type(assigner).__name__} merges windows, which {type(self._trigger).__name__} does not support"
            )

    # --- life ---------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        self._backend = backend = self.context.keyed_backend()
        self._evictable = None if self._evictor is None else EvictableCell(backend, self._aggregate)
        self._cell: WindowCell = self._evictable or window_cell(backend, self._aggregate)
        self.timers = backend.timer_service("window-timers")
        self._wake_ups = WakeUps(self.context, self.timers, _TIMER_DELAY_MS)
        self.clock = EventClock(self.context)
        self._trigger_ctx = TriggerCallContext(self, backend)
        self._window_ctx = WindowCallContext(self, backend, merges=self._assigner.merges)
        if self._assigner.merges:
            self._sessions = backend.list_state(ListStateDescriptor("merging-window-set"))
        self._spec_state = self.context.operator_backend().union_list_state("window-spec")
        check_window_spec(self, self._spec_state.get(), self._spec())
        self._out: list[Any] = []
        self._out_stamps: list[int] = []

    def _spec(self) -> str:
        return f"{self._assigner.spec()} with {self._trigger.spec()}"

    def open(self) -> None:
        if self._process_object is not None:
            self._process_object.open(self._window_ctx)
        self._wake_ups.arm()

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.clock.snapshot()
        self._spec_state.update([self._spec()])

    def close(self) -> None:
        if self._process_object is not None:
            self._process_object.close()

    def fingerprint(self) -> object:
        return self.clock.watermark_ms, self._wake_ups.fingerprint()

    # --- records ------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        if not batch:
            return
        values, stamps, keys = batch.values, batch.timestamps, batch.keys
        assert keys is not None, "a window operator needs key_by before it"
        if stamps is None and self._assigner.needs_timestamps:
            raise missing_timestamps(self)
        refuse_none(self, values)
        late: list[tuple[Any, int]] = []
        for key, stamp, value in zip(keys, repeat(None) if stamps is None else stamps, values, strict=False):
            self._backend.set_current_key(key)
            if not self._add_to_windows(key, value, stamp) and self._is_late(stamp):
                assert stamp is not None
                late.append((value, stamp))
        self._drop(late)
        self._send()
        self._wake_ups.arm()

    def _add_to_windows(self, key: Any, value: Any, stamp: int | None) -> bool:
        """Whether any window took the record."""
        now_ms = self.context.processing_time_ms()
        windows = self._guarded("window assigner", value, lambda: self._assigner.assign(value, stamp, now_ms))
        taken = False
        for window in windows:
            if self._assigner.merges:
                taken |= self._add_to_session(key, window, value, stamp)
            elif not self._is_gone(window):
                self._add(key, window, self._assigner.namespace_of(window), value, stamp)
                taken = True
        return taken

    def _add_to_session(self, key: Any, window: TimeWindow, value: Any, stamp: int | None) -> bool:
        sessions = self._load_sessions()
        merge = sessions.plan(window)
        if self._is_gone(merge.result):
            return False
        namespace_of = self._assigner.namespace_of
        if merge.merged:
            self._merge_triggers(key, merge.result, merge.merged)
            moved = [namespace_of(one) for one in merge.moved]
            where = {"key": key, "window": merge.result}
            state_namespace = namespace_of(merge.state_window)
            self._guarded(self._cell.what, where, lambda: self._cell.merge(state_namespace, moved))
        if merge.merged or sessions.state_window(merge.result) is None:
            # A session that only grew is another set of windows, too (mutant "grown sessions not persisted").
            sessions.apply(merge)
            self._sessions.update(sessions.to_stored())
        self._add(key, merge.result, namespace_of(merge.state_window), value, stamp)
        return True

    def _merge_triggers(self, key: Any, result: TimeWindow, merged: Sequence[TimeWindow]) -> None:
        """Merge the triggers of several windows into one; delete the cleanup timers of the old windows."""
        ctx, trigger, namespace_of = self._trigger_ctx, self._trigger, self._assigner.namespace_of
        where = {"key": key, "window": result}
        ctx.namespace, ctx.merged = namespace_of(result), [namespace_of(one) for one in merged]
        self._guarded("trigger", where, lambda: trigger.on_merge(result, ctx))
        for window in merged:
            ctx.namespace = namespace_of(window)
            self._guarded("trigger", where, partial(trigger.clear, window, ctx))
            self._cleanup_timers().delete(key, ctx.namespace, self._cleanup_time(window))
        ctx.merged = ()

    def _add(self, key: Any, window: Window, state_namespace: Any, value: Any, stamp: int | None) -> None:
        self._guarded(self._cell.what, value, lambda: self._cell.add(state_namespace, value, stamp))
        ctx = self._trigger_ctx
        ctx.namespace = namespace = self._assigner.namespace_of(window)
        result = self._guarded("trigger", value, lambda: self._trigger.on_element(value, stamp, window, ctx))
        self._obey(result, key, window, namespace, state_namespace)
        self._register_cleanup(key, window, namespace)

    # --- timers -------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp_ms: int) -> None:
        self.clock.advance(timestamp_ms)
        watermark_ms = self.clock.watermark_ms
        while (timer := self.timers.event_time.pop_next(watermark_ms)) is not None:
            self._on_timer(*timer, self._trigger.on_event_time, of_cleanup=self._assigner.is_event_time)
        self._send()
        self._wake_ups.arm()
        self.output.emit_watermark(watermark_ms)

    def on_processing_time(self, time_ms: int) -> None:
        self._wake_ups.passed(time_ms)
        while (timer := self.timers.processing_time.pop_next(time_ms - _TIMER_DELAY_MS)) is not None:
            self._on_timer(*timer, self._trigger.on_processing_time, of_cleanup=not self._assigner.is_event_time)
        self._send()
        self._wake_ups.arm()

    def _on_timer(
        self,
        time_ms: int,
        key: Any,
        namespace: Any,
        callback: Callable[[int, Any, Any], TriggerResult],
        *,
        of_cleanup: bool,
    ) -> None:
        self._backend.set_current_key(key)
        window = self._assigner.window_of(namespace)
        state_namespace = self._state_namespace(window, namespace)
        if state_namespace is None:
            # A trigger has left a timer for a session that has become part of another one.
            return
        ctx = self._trigger_ctx
        ctx.namespace = namespace
        where = {"key": key, "window": window, "timer_ms": time_ms}
        result = self._guarded("trigger", where, lambda: callback(time_ms, window, ctx))
        self._obey(result, key, window, namespace, state_namespace)
        if self.lineage is not None:
            self.lineage.emitting(key, namespace)
            self._send()
            self.lineage.emitted()
        if not of_cleanup:
            return
        if time_ms >= self._cleanup_time(window):
            self._clean_up(key, window, namespace, state_namespace)
        else:
            # The timer may be the cleanup timer of a run with another allowed lateness: there must always be one.
            self._register_cleanup(key, window, namespace)

    def _state_namespace(self, window: Window, namespace: Any) -> Any:
        if not self._assigner.merges:
            return namespace
        assert isinstance(window, TimeWindow)
        state_window = self._load_sessions().state_window(window)
        return None if state_window is None else self._assigner.namespace_of(state_window)

    def _clean_up(self, key: Any, window: Window, namespace: Any, state_namespace: Any) -> None:
        where = {"key": key, "window": window}
        self._cell.clear(state_namespace)
        self._trigger_ctx.namespace = namespace
        self._guarded("trigger", where, lambda: self._trigger.clear(window, self._trigger_ctx))
        function = self._process_object
        if function is not None:
            self._window_ctx.point_at(window, namespace)
            self._guarded("window function", where, lambda: function.clear(self._window_ctx))
        if self._assigner.merges:
            assert isinstance(window, TimeWindow)
            sessions = self._load_sessions()
            sessions.retire(window)
            self._sessions.update(sessions.to_stored())

    def _load_sessions(self) -> MergingWindows:
        return MergingWindows(self._sessions.get() or ())

    # --- results ------------------------------------------------------------------------------------------

    def _obey(self, result: Any, key: Any, window: Window, namespace: Any, state_namespace: Any) -> None:
        if not isinstance(result, TriggerResult):
            problem = TypeError(f"a trigger returns a TriggerResult, got {result!r}")
            raise self.user_error("trigger", {"key": key, "window": window}, problem) from problem
        if result.fires:
            self._fire(key, window, namespace, state_namespace)
        if result.purges:
            self._cell.clear(state_namespace)

    def _fire(self, key: Any, window: Window, namespace: Any, state_namespace: Any) -> None:
        contents = self._cell.get(state_namespace)
        if contents is None:
            return
        where = {"key": key, "window": window}
        evictor, evictable, ctx = self._evictor, self._evictable, self._trigger_ctx
        if evictor is None or evictable is None:
            self._compute(key, window, namespace, contents)
            return
        kept = self._guarded("evictor", where, lambda: evictor.evict_before(list(contents), window, ctx))
        if kept or not evictable.is_reduction:
            self._compute(key, window, namespace, kept)
        kept = self._guarded("evictor", where, lambda: evictor.evict_after(list(kept), window, ctx))
        evictable.replace(state_namespace, kept)

    def _compute(self, key: Any, window: Window, namespace: Any, contents: Any) -> None:
        where = {"key": key, "window": window}
        result = self._guarded(self._cell.what, where, lambda: self._cell.result(contents))
        where["result"] = result
        produced = self._guarded("window function", where, lambda: self._call(key, window, namespace, result))
        self._out += produced
        self._out_stamps += [window.max_timestamp] * len(produced)

    def _call(self, key: Any, window: Window, namespace: Any, result: Any) -> Sequence[Any]:
        if self._window_function is not None:
            return (self._window_function(key, window, result),)
        if self._process_object is not None:
            self._window_ctx.point_at(window, namespace)
            elements = result if self._aggregate is None else [result]
            if isinstance(self._process_object, ProcessAllWindowFunction):
                return _listed(self._process_object.process(self._window_ctx, elements))
            return _listed(self._process_object.process(key, self._window_ctx, elements))
        if self._process_function is not None:
            return _listed(self._process_function(key, window, result))
        if isinstance(window, TimeWindow):
            return ((key, window.start, window.end, result),)
        return ((key, result),)

    def _send(self) -> None:
        self._window_ctx.side.flush(self.output)
        out, self._out = self._out, []
        stamps, self._out_stamps = self._out_stamps, []
        if out:
            self.output.emit(Batch(out, stamps))

    def _drop(self, late: list[tuple[Any, int]]) -> None:
        if not late:
            return
        if self._late_tag is None:
            self.context.metrics.count("numLateRecordsDropped", len(late))
        else:
            self.output.emit_side(self._late_tag, Batch([value for value, _ in late], [stamp for _, stamp in late]))

    # --- time ---------------------------------------------------------------------------------------------

    def _cleanup_time(self, window: Window) -> int:
        if not self._assigner.is_event_time:
            return window.max_timestamp
        return min(window.max_timestamp + self._allowed_lateness_ms, MAX_TIMESTAMP_MS)

    def _is_gone(self, window: Window) -> bool:
        return self._assigner.is_event_time and self._cleanup_time(window) <= self.clock.watermark_ms

    def _is_late(self, stamp: int | None) -> bool:
        return (
            self._assigner.is_event_time
            and stamp is not None
            and stamp + self._allowed_lateness_ms <= self.clock.watermark_ms
        )

    def _register_cleanup(self, key: Any, window: Window, namespace: Any) -> None:
        cleanup_ms = self._cleanup_time(window)
        if cleanup_ms != MAX_TIMESTAMP_MS:
            self._cleanup_timers().add(key, namespace, cleanup_ms)

    def _cleanup_timers(self) -> TimerQueue:
        return self.timers.event_time if self._assigner.is_event_time else self.timers.processing_time

    # --- the user's functions -----------------------------------------------------------------------------

    def _guarded(self, what: str, record: Any, call: Callable[[], Any]) -> Any:
        """The result of ``call``; its errors name the function and the record, or the key and window."""
        try:
            return call()
        except Exception as error:
            raise self.user_error(what, record, error) from error


def _process_object(function: Any) -> ProcessWindowFunction | ProcessAllWindowFunction | None:
    """The operator's own instance of a process window function; ``None`` for anything else."""
    kind = function if isinstance(function, type) else type(function)
    if not issubclass(kind, (ProcessWindowFunction, ProcessAllWindowFunction)):
        return None
    own: ProcessWindowFunction | ProcessAllWindowFunction = own_instance(function)
    return own


def _listed(produced: Iterable[Any] | None) -> Sequence[Any]:
    return () if produced is None else list(produced)
