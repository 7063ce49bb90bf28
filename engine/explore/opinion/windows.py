"""Windows: of every kind, with triggers, evictors, merging and late records (docs/event-time-and-windows.md).

Rules, for a window whose last millisecond is *m*, with watermark *w* and allowed lateness *l*.

* A record is added to each of its windows that still exists: *w* < *m* + *l*. If no window took it, and *w* has reached
  its own time plus *l* too, it is late: it goes to the side output for late records, or is dropped.
* The default trigger fires when *w* reaches *m*, and at once for every record after that. A result has timestamp *m*
  and is sent before the watermark that caused it; several results are sent by time, then by encoded key.
* When *w* reaches *m* + *l* the window is deleted, with its trigger's state and timers.
* A session opens at a record and lasts one gap. Sessions that overlap or touch are merged before the record is added;
  then the contents are merged in the order of time. If the merged session would be deleted already, nothing is merged
  and the record is late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.explore.opinion.elements import EvaluatedStep, NotModelled, Record, Spec, is_a, own_copy
from engine.explore.opinion.plain_state import Cells, CellStates, ListCell, ReducingCell, Timers, copied
from engine.explore.opinion.window_triggers import FIRES, PURGES, AtTheEnd, evictor_of, trigger_of
from operators.windows import GlobalWindow, TimestampedValue, TimeWindow, TumblingEventTimeWindows


def _scope(window: Any) -> tuple[int, int]:
    return (window.start, window.end) if isinstance(window, TimeWindow) else (0, 0)


def windows_of(assigner: Any, value: Any, stamp: int | None) -> Sequence[Any]:
    """The windows of a record; an assigner of the user returns them itself."""
    name = type(assigner).__name__
    if not type(assigner).__module__.startswith("operators."):
        found: Sequence[Any] = assigner.assign(value, stamp, _no_clock)
        return found
    if name == "GlobalWindows":
        return (GlobalWindow(),)
    assert stamp is not None, "windows of event time need event times"
    if name == "EventTimeSessionWindows":
        gap_ms = assigner.gap_ms if assigner.gap_of is None else assigner.gap_of(value)
        return (TimeWindow(stamp, stamp + gap_ms),)
    # Windows begin at the offset plus multiples of the slide; tumbling ones slide by their size.
    slide_ms = assigner.size_ms if isinstance(assigner, TumblingEventTimeWindows) else assigner.slide_ms
    latest = (stamp - assigner.offset_ms) // slide_ms * slide_ms + assigner.offset_ms
    starts = []
    while latest + assigner.size_ms > stamp:
        starts.append(latest)
        latest -= slide_ms
    return [TimeWindow(start, start + assigner.size_ms) for start in starts]


class _NoClock(int):
    """Passed to an assigner of the user as the time of the virtual clock: reading it ends the evaluation."""

    def _look(self, *_: Any) -> Any:
        raise NotModelled("its windows go by the virtual clock, which depends on costs and schedules")

    __add__ = __radd__ = __sub__ = __rsub__ = __mod__ = __floordiv__ = __mul__ = __lt__ = __le__ = __gt__ = _look


_no_clock = _NoClock()


class _TriggerContext(CellStates):
    """The context of a trigger or evictor for the current window."""

    end_of_time_ms = MAX_TIMESTAMP_MS

    def __init__(self, step: WindowStep) -> None:
        super().__init__(step.cells, "trigger.", scoped=True)
        self._step = step
        self.merged: Sequence[Any] = ()

    @property
    def current_watermark_ms(self) -> int:
        return self._step.watermark_ms

    def processing_time_ms(self, _time_ms: int = 0) -> int:
        raise NotModelled("its trigger asks for the virtual clock, which depends on costs and schedules")

    register_processing_time_timer = processing_time_ms

    def delete_processing_time_timer(self, time_ms: int) -> None:
        """No such timer exists."""

    def register_event_time_timer(self, time_ms: int) -> None:
        self._step.timers.add(time_ms, self._cells.key, self._cells.scope)

    def delete_event_time_timer(self, time_ms: int) -> None:
        """Of the current window; its cleanup timer does not belong to the trigger, and stays."""
        if time_ms != self._step.cleanup_of_scope():
            self._step.timers.remove(time_ms, self._cells.key, self._cells.scope)

    def of_merged(self, name: str) -> list[Any]:
        """The values of a state in the windows that were just merged."""
        cells = [self._cells.cells.get((f"trigger.{name}", _scope(window)), {}) for window in self.merged]
        return [cell.pop(self._cells.key) for cell in cells if self._cells.key in cell]

    def merge_state(self, state: ListCell | ReducingCell) -> None:
        """Move the state of the merged windows into the new one."""
        if not hasattr(state, "join"):
            raise TypeError("merge_state takes a list or reducing state")
        for value in self.of_merged(state.name.removeprefix("trigger.")):
            before = state.get()
            joined = value if before is None else state.join(before, value)
            state.clear()
            state.add_all(joined) if isinstance(state, ListCell) else state.add(joined)


class _WindowContext:
    """The context of a window function."""

    def __init__(self, step: WindowStep) -> None:
        self._step = step
        self.window: Any = None
        self.global_state = CellStates(step.cells, "function.")

    @property
    def current_watermark_ms(self) -> int:
        return self._step.watermark_ms

    def processing_time_ms(self) -> int:
        raise NotModelled("its window function asks for the virtual clock, which depends on costs and schedules")

    @property
    def window_state(self) -> CellStates:
        """State of key and window."""
        if self._step.assigner.merges:
            raise TypeError("sessions have no state per window, for windows become one; use global_state instead")
        return CellStates(self._step.cells, "function.", scoped=True)

    def side_output(self, tag: str, value: Any) -> None:
        self._step.emit(value, self.window.max_timestamp, tag)


class WindowStep(EvaluatedStep):
    """A window operator. ``contents``: by key and window, an accumulator, a reduction or a list of records."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        given = spec.given
        self.assigner, self._aggregate = given["assigner"], given.get("aggregate")
        self._lateness_ms, self._late_tag = given.get("allowed_lateness_ms", 0), given.get("late_tag")
        self.cells, self.timers = Cells(), Timers()
        self._evictor = None if given.get("evictor") is None else evictor_of(given["evictor"])
        self._contents: dict[Any, dict[Any, Any]] = {}
        self._open: dict[Any, list[Any]] = {}
        """By key, the existing windows, in order of time."""
        if not self.assigner.is_event_time:
            raise NotModelled("its windows go by the virtual clock, which depends on costs and schedules")
        self._trigger = trigger_of(given.get("trigger") or self.assigner.default_trigger())
        self._context, self._window_context = _TriggerContext(self), _WindowContext(self)
        self._object, self._call = self._function(given)

    def _function(self, given: Any) -> tuple[Any, Callable[[Any, Any, Any], Any]]:
        """The function object, if any, and a function that makes a window's output from key, window and result."""
        process, single = given.get("process_function"), given.get("window_function")
        if single is not None:
            return None, lambda key, window, result: (single(key, window, result),)
        if process is None:
            return None, _plain
        for name, passes_key in (("ProcessWindowFunction", True), ("ProcessAllWindowFunction", False)):
            if is_a(process, f"operators.windows.window_functions.{name}"):
                own = own_copy(process)
                own.open(self._window_context)
                return own, partial(self._with_context, own, passes_key)
        if is_a(process, "operators.joins.window_join.CoGroup"):
            return None, partial(_co_group, process._function)
        if is_a(process, "operators.joins.window_join.JoinPairs"):
            return None, partial(_pairs, process._function)
        return None, process

    def _with_context(self, function: Any, passes_key: bool, key: Any, window: Any, result: Any) -> Any:
        elements = result if self._aggregate is None else [result]
        context = self._window_context
        return function.process(*((key,) if passes_key else ()), context, elements)

    # --- records ------------------------------------------------------------------------------------------

    def on_record(self, record: Record, which: int) -> None:
        if record.value is None:
            raise TypeError("None cannot be put into a window")
        key, taken = record.key, False
        self.cells.key = key
        for window in windows_of(self.assigner, record.value, record.stamp):
            if self.assigner.merges:
                merged = self._merge(key, window)
                if merged is not None:
                    self._add(key, merged, record)
                    taken = True
            elif not self._is_gone(window):
                self._add(key, window, record)
                taken = True
        is_late = not taken and record.stamp is not None and record.stamp + self._lateness_ms <= self.watermark_ms
        if is_late and self._late_tag is not None:
            self.emit(record.value, record.stamp, self._late_tag)

    def _add(self, key: Any, window: Any, record: Record) -> None:
        contents = self._contents.setdefault(key, {})
        before = contents.get(window)
        if self._evictor is not None:
            contents[window] = [*(before or ()), TimestampedValue(record.value, record.stamp)]
        else:
            contents[window] = self._added(before, record.value)
        if window not in self._open.setdefault(key, []):
            self._open[key].append(window)
        self._set_cleanup(key, window)
        self.cells.scope = _scope(window)
        self._obey(self._trigger.on_element(record.value, record.stamp, window, self._context), key, window)

    def _added(self, before: Any, value: Any) -> Any:
        function = self._aggregate
        if function is None:
            return [*(before or ()), value]
        if hasattr(function, "create"):
            return function.add(function.create() if before is None else before, value)
        return copied(value) if before is None else function(before, value)

    def _merge(self, key: Any, window: Any) -> Any:
        """The session of a record after merging it with the sessions that it touches; ``None``: too late."""
        sessions = self._open.setdefault(key, [])
        met = sorted(one for one in sessions if one.start <= window.end and window.start <= one.end)
        result = TimeWindow(min(one.start for one in (window, *met)), max(one.end for one in (window, *met)))
        if self._is_gone(result):
            return None
        if not met or met == [result]:
            return result
        context, contents = self._context, self._contents.setdefault(key, {})
        context.merged, self.cells.scope = met, _scope(result)
        self._trigger.on_merge(result, context)
        joined: Any = None
        for session in met:
            if session != result:
                self._forget(key, session)
            sessions.remove(session)
            found = contents.pop(session, None)
            joined = found if joined is None else joined if found is None else self._joined(joined, found)
        sessions.append(result)
        if joined is not None:
            contents[result] = joined
        return result

    def _joined(self, first: Any, second: Any) -> Any:
        if self._evictor is not None or self._aggregate is None:
            return [*first, *second]
        merge = getattr(self._aggregate, "merge", self._aggregate)
        return merge(first, second)

    # --- time ---------------------------------------------------------------------------------------------

    def on_watermark(self, ms: int) -> None:
        while (timer := self.timers.next_due(ms)) is not None:
            time_ms, key, scope = timer
            window = next((one for one in self._open.get(key, ()) if _scope(one) == scope), None)
            if window is None:
                # Of a session that was merged into another one.
                continue
            self.cells.key, self.cells.scope = key, scope
            self._obey(self._trigger.on_event_time(time_ms, window, self._context), key, window)
            if time_ms >= self._cleanup_ms(window):
                self._contents[key].pop(window, None)
                if self._object is not None:
                    self.cells.scope, self._window_context.window = scope, window
                    self._object.clear(self._window_context)
                self._forget(key, window)
                self._open[key].remove(window)

    def _forget(self, key: Any, window: Any) -> None:
        """Delete timers and trigger state of a window."""
        self.cells.scope = _scope(window)
        self._trigger.clear(window, self._context)
        self.timers.remove(self._cleanup_ms(window), key, _scope(window))
        if isinstance(self._trigger, AtTheEnd):
            self.timers.remove(window.max_timestamp, key, _scope(window))

    def _cleanup_ms(self, window: Any) -> int:
        return min(int(window.max_timestamp) + int(self._lateness_ms), MAX_TIMESTAMP_MS)

    def cleanup_of_scope(self) -> int | None:
        """When the current window is deleted; ``None``: never."""
        start, end = self.cells.scope
        return None if start == end else min(end - 1 + self._lateness_ms, MAX_TIMESTAMP_MS)

    def _is_gone(self, window: Any) -> bool:
        return self._cleanup_ms(window) <= self.watermark_ms

    def _set_cleanup(self, key: Any, window: Any) -> None:
        if self._cleanup_ms(window) != MAX_TIMESTAMP_MS:
            self.timers.add(self._cleanup_ms(window), key, _scope(window))

    # --- results ------------------------------------------------------------------------------------------

    def _obey(self, result: Any, key: Any, window: Any) -> None:
        if result in FIRES and window in self._contents.get(key, {}):
            self._fire(key, window)
        if result in PURGES:
            self._contents.get(key, {}).pop(window, None)

    def _fire(self, key: Any, window: Any) -> None:
        contents, evictor = self._contents[key], self._evictor
        if evictor is None:
            self._compute(key, window, self._result(contents[window]))
            return
        self.cells.scope = _scope(window)
        kept = evictor.evict_before(list(contents[window]), window, self._context)
        values = [element.value for element in kept]
        reduces = self._aggregate is not None and not hasattr(self._aggregate, "create")
        if values or not reduces:
            folded: Any = None if values or self._aggregate is None else self._aggregate.create()
            for value in values:
                folded = self._added(folded, value)
            self._compute(key, window, self._result([] if folded is None else folded))
        contents[window] = evictor.evict_after(list(kept), window, self._context)
        if not contents[window]:
            del contents[window]

    def _result(self, contents: Any) -> Any:
        function = self._aggregate
        if function is None:
            return list(contents)
        return function.get_result(contents) if hasattr(function, "create") else contents

    def _compute(self, key: Any, window: Any, result: Any) -> None:
        self.cells.scope, self._window_context.window = _scope(window), window
        self.emit_all(self._call(key, window, result), window.max_timestamp)


def _plain(key: Any, window: Any, result: Any) -> tuple[Any, ...]:
    if isinstance(window, TimeWindow):
        return ((key, window.start, window.end, result),)
    return ((key, result),)


def _co_group(function: Any, key: Any, window: Any, values: Sequence[tuple[int, Any]]) -> Any:
    """Both lists of a key and window (docs/joins.md)."""
    return function([one for side, one in values if side == 1], [one for side, one in values if side == 2])


def _pairs(function: Any, key: Any, window: Any, values: Sequence[tuple[int, Any]]) -> Any:
    """Every pair of the two lists."""
    return [function(left, right) for side, left in values if side == 1 for other, right in values if other == 2]


STEPS: dict[str, Callable[[Spec], EvaluatedStep]] = {
    "operators.windows.window_operator.WindowOperator": WindowStep,
    "operators.windows.window_operator.SlidingWindowOperator": WindowStep,
    "operators.windows.triggered_windows.TriggeredWindowOperator": WindowStep,
}
