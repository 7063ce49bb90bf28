"""Keyed process functions: user code with state and timers per key (Flink: ``KeyedProcessOperator``).

Event-time timers fire in ``process_watermark`` *before* the watermark is passed on: their results have timestamps at or
below it. Timers are taken one at a time, in an order that depends only on the set of timers. So a callback may register
timers that fire in the same advance, or delete one that is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from operators.basic.functions import KeyedProcessFunction, private_copy
from operators.basic.keyed_states import KeyedStates
from operators.basic.side_output import SideOutputs
from operators.basic.stateless import item_in_hand
from operators.time import EventClock, WakeUps
from state_backends.api import KeyedStateBackend, Timer

_VOID = None
"""Timers of process functions have no namespace."""


class KeyedContext(KeyedStates):
    """The ``KeyedProcessContext`` of one operator. The operator sets key, timestamp and domain before each call."""

    __slots__ = ("_operator", "current_key", "side", "time_domain", "timestamp_ms")

    def __init__(self, operator: KeyedFunctionOperator, backend: KeyedStateBackend) -> None:
        super().__init__(backend)
        self._operator = operator
        self.side = SideOutputs()
        self.current_key: Any = None
        self.timestamp_ms: int | None = None
        self.time_domain = "event"

    @property
    def current_watermark_ms(self) -> int:
        return self._operator.clock.watermark_ms

    def processing_time_ms(self) -> int:
        return self._operator.context.processing_time_ms()

    def side_output(self, tag: str, value: Any) -> None:
        self.side.add(tag, value, self.timestamp_ms)

    def register_event_time_timer(self, time_ms: int) -> None:
        self._operator.timers.event_time.add(self._backend.current_key, _VOID, time_ms)

    def delete_event_time_timer(self, time_ms: int) -> None:
        self._operator.timers.event_time.delete(self._backend.current_key, _VOID, time_ms)

    def register_processing_time_timer(self, time_ms: int) -> None:
        self._operator.timers.processing_time.add(self._backend.current_key, _VOID, time_ms)
        self._operator.wake_ups.arm()

    def delete_processing_time_timer(self, time_ms: int) -> None:
        self._operator.timers.processing_time.delete(self._backend.current_key, _VOID, time_ms)


class KeyedFunctionOperator(Operator):
    """The common part of operators with a function, keyed state and timers: clock, timers, their firing, output."""

    _what = "keyed process function"

    def __init__(self, function: Any) -> None:
        self.function = function

    def initialize_state(self) -> None:
        self._backend = self.context.keyed_backend()
        self.timers = self._backend.timer_service("process-timers")
        self.wake_ups = WakeUps(self.context, self.timers)
        self.clock = EventClock(self.context)
        self._ctx = self._make_context()

    def _make_context(self) -> KeyedContext:
        return KeyedContext(self, self._backend)

    def open(self) -> None:
        self.function.open(self._ctx)
        # Restored processing-time timers have no wake-up yet (mutant "timers not armed after a restore").
        self.wake_ups.arm()

    def _process_keyed(self, process: Callable[[Any, Any], Iterable[Any] | None], batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        assert keys is not None, "an operator with keyed state needs key_by before it"
        ctx, set_current_key = self._ctx, self._backend.set_current_key
        out: list[Any] = []
        out_stamps: list[int | None] = []
        iterator = iter(batch.values)
        try:
            for key, stamp, value in zip(keys, repeat(None) if stamps is None else stamps, iterator, strict=False):
                set_current_key(key)
                ctx.current_key = key
                ctx.timestamp_ms = stamp
                produced = process(value, ctx)
                if produced is not None:
                    before = len(out)
                    out.extend(produced)
                    out_stamps.extend(repeat(stamp, len(out) - before))
        except Exception as error:
            record = item_in_hand(batch.values, iterator)
            raise self.user_error(self._what, record, error) from error
        self._send(out, out_stamps)

    def process_watermark(self, timestamp_ms: int) -> None:
        self.clock.advance(timestamp_ms)
        watermark_ms = self.clock.watermark_ms
        out: list[Any] = []
        out_stamps: list[int | None] = []
        self._ctx.time_domain = "event"
        while (timer := self.timers.event_time.pop_next(watermark_ms)) is not None:
            self._call_timer(timer, timer[0], out, out_stamps)
        self._send(out, out_stamps)
        self.output.emit_watermark(watermark_ms)

    def on_processing_time(self, time_ms: int) -> None:
        self.wake_ups.passed(time_ms)
        out: list[Any] = []
        self._ctx.time_domain = "processing"
        while (timer := self.timers.processing_time.pop_next(time_ms)) is not None:
            # A result of processing time has no event time (Flink erases the timestamp).
            self._call_timer(timer, None, out, [])
        self._ctx.time_domain = "event"
        self._send(out, [None] * len(out))
        self.wake_ups.arm()

    def _call_timer(self, timer: Timer, stamp: int | None, out: list[Any], out_stamps: list[int | None]) -> None:
        time_ms, key, _ = timer
        ctx = self._ctx
        self._backend.set_current_key(key)
        ctx.current_key = key
        ctx.timestamp_ms = stamp
        before = len(out)
        try:
            produced = self.function.on_timer(time_ms, ctx)
            if produced is not None:
                out.extend(produced)
        except Exception as error:
            where = {"timer_ms": time_ms, "key": key, "domain": ctx.time_domain}
            raise self.user_error(f"on_timer of {self._what}", where, error) from error
        out_stamps.extend(repeat(stamp, len(out) - before))
        if self.lineage is not None:
            self.lineage.emitting(key)
            self._send(list(out), list(out_stamps))
            self.lineage.emitted()
            out.clear()
            out_stamps.clear()

    def _send(self, out: list[Any], out_stamps: list[int | None]) -> None:
        self._ctx.side.flush(self.output)
        if out:
            known = [stamp for stamp in out_stamps if stamp is not None]
            self.output.emit(Batch(out, known if len(known) == len(out) else None))

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.clock.snapshot()

    def close(self) -> None:
        self.function.close()

    def fingerprint(self) -> object:
        return self.clock.watermark_ms, self.wake_ups.fingerprint()


class KeyedProcessOperator(KeyedFunctionOperator):
    """A keyed process function (or a callable ``(value, ctx)``) over a keyed stream."""

    def __init__(
        self, function: KeyedProcessFunction | type[KeyedProcessFunction] | Callable[[Any, Any], Iterable[Any] | None]
    ) -> None:
        super().__init__(private_copy(function))

    def process_batch(self, batch: Batch) -> None:
        self._process_keyed(self.function.process_element, batch)
