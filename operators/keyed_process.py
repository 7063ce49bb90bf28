"""Keyed process functions: user code with state and timers per key (Flink: ``KeyedProcessOperator``).

Event-time timers fire in ``process_watermark`` *before* the watermark is passed on: what they emit has
timestamps at or below it. Timers are taken one at a time, in an order that depends only on which timers
there are, so a callback may register further timers that fire in the same advance, or delete one that is
due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.operator import Operator
from operators.event_clock import EventClock
from operators.functions import KeyedProcessFunction, private_copy
from operators.side_output import SideOutputs
from operators.transforms import item_in_hand
from state_backends.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from state_backends.heap import HeapKeyedStateBackend
from state_backends.keyed_backend import ListState, MapState, ReducingState, ValueState
from state_backends.timers import Timer

_VOID = None
"""Timers of process functions have no namespace."""


class _Context:
    """The ``KeyedProcessContext`` of one operator. The operator sets key, timestamp and domain before each call."""

    __slots__ = ("_backend", "_handles", "_operator", "current_key", "side", "time_domain", "timestamp_ms")

    def __init__(self, operator: KeyedProcessOperator, backend: HeapKeyedStateBackend) -> None:
        self._operator = operator
        self._backend = backend
        self._handles: dict[tuple[str, str], Any] = {}
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
        self._operator.timers.register_event_time_timer(self._backend.current_key, _VOID, time_ms)

    def delete_event_time_timer(self, time_ms: int) -> None:
        self._operator.timers.delete_event_time_timer(self._backend.current_key, _VOID, time_ms)

    def register_processing_time_timer(self, time_ms: int) -> None:
        self._operator.timers.register_processing_time_timer(self._backend.current_key, _VOID, time_ms)
        self._operator.arm()

    def delete_processing_time_timer(self, time_ms: int) -> None:
        self._operator.timers.delete_processing_time_timer(self._backend.current_key, _VOID, time_ms)

    def value_state(self, name: str, default: Any = None) -> ValueState:
        handle: ValueState = self._handle(
            "value", name, lambda: self._backend.value_state(ValueStateDescriptor(name, default))
        )
        return handle

    def list_state(self, name: str) -> ListState:
        handle: ListState = self._handle(
            "list", name, lambda: self._backend.list_state(ListStateDescriptor(name))
        )
        return handle

    def reducing_state(self, name: str, reduce: Callable[[Any, Any], Any]) -> ReducingState:
        handle: ReducingState = self._handle(
            "reducing", name, lambda: self._backend.reducing_state(ReducingStateDescriptor(name, reduce))
        )
        return handle

    def map_state(self, name: str) -> MapState:
        handle: MapState = self._handle(
            "map", name, lambda: self._backend.map_state(MapStateDescriptor(name))
        )
        return handle

    def _handle(self, kind: str, name: str, declare: Callable[[], Any]) -> Any:
        # Declared once: a plain callable asks for its state again with every record.
        handle = self._handles.get((kind, name))
        if handle is None:
            handle = self._handles[kind, name] = declare()
        return handle


class KeyedProcessOperator(Operator):
    """A keyed process function (or a callable ``(value, ctx)``) over a keyed stream."""

    def __init__(
        self,
        function: KeyedProcessFunction
        | type[KeyedProcessFunction]
        | Callable[[Any, Any], Iterable[Any] | None],
    ) -> None:
        self._function = private_copy(function)
        self._armed_ms: dict[int, None] = {}

    def initialize_state(self) -> None:
        self._backend = self.context.keyed_backend()
        self.timers = self._backend.timer_service("process-timers")
        self.clock = EventClock(self.context)
        self._ctx = _Context(self, self._backend)

    def open(self) -> None:
        self._function.open(self._ctx)
        # Restored processing-time timers have no wake-up yet.
        self.arm()

    def process_batch(self, batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        assert keys is not None, "a keyed process operator stands behind key_by"
        process, ctx, set_current_key = self._function.process_element, self._ctx, self._backend.set_current_key
        out: list[Any] = []
        out_stamps: list[int | None] = []
        iterator = iter(batch.values)
        try:
            for key, stamp, value in zip(
                keys, repeat(None) if stamps is None else stamps, iterator, strict=False
            ):
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
            raise self.user_error("keyed process function", record, error) from error
        self._send(out, out_stamps)

    def process_watermark(self, timestamp_ms: int) -> None:
        self.clock.advance(timestamp_ms)
        watermark_ms = self.clock.watermark_ms
        out: list[Any] = []
        out_stamps: list[int | None] = []
        self._ctx.time_domain = "event"
        while (timer := self.timers.pop_next_event_time(watermark_ms)) is not None:
            self._call_timer(timer, timer[0], out, out_stamps)
        self._send(out, out_stamps)
        self.output.emit_watermark(watermark_ms)

    def on_processing_time(self, time_ms: int) -> None:
        self._armed_ms = {armed: None for armed in self._armed_ms if armed > time_ms}
        out: list[Any] = []
        self._ctx.time_domain = "processing"
        while (timer := self.timers.pop_next_processing_time(time_ms)) is not None:
            # What happens in processing time has no event time (Flink erases the timestamp).
            self._call_timer(timer, None, out, [])
        self._ctx.time_domain = "event"
        self._send(out, [None] * len(out))
        self.arm()

    def _call_timer(
        self, timer: Timer, stamp: int | None, out: list[Any], out_stamps: list[int | None]
    ) -> None:
        time_ms, key, _ = timer
        ctx = self._ctx
        self._backend.set_current_key(key)
        ctx.current_key = key
        ctx.timestamp_ms = stamp
        before = len(out)
        try:
            produced = self._function.on_timer(time_ms, ctx)
            if produced is not None:
                out.extend(produced)
        except Exception as error:
            where = {"timer_ms": time_ms, "key": key, "domain": ctx.time_domain}
            raise self.user_error("on_timer of keyed process function", where, error) from error
        out_stamps.extend(repeat(stamp, len(out) - before))

    def _send(self, out: list[Any], out_stamps: list[int | None]) -> None:
        self._ctx.side.flush(self.output)
        if out:
            known = [stamp for stamp in out_stamps if stamp is not None]
            self.output.emit(Batch(out, known if len(known) == len(out) else None))

    def arm(self) -> None:
        """Have a wake-up for the earliest processing-time timer, unless there is one by then."""
        due_ms = self.timers.next_processing_time()
        if due_ms is not None and due_ms < MAX_TIMESTAMP_MS and due_ms not in self._armed_ms:
            self._armed_ms[due_ms] = None
            self.context.register_processing_timer(due_ms)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.clock.snapshot()

    def close(self) -> None:
        self._function.close()

    def fingerprint(self) -> object:
        now_ms = self.context.processing_time_ms()
        return self.clock.watermark_ms, sorted(armed - now_ms for armed in self._armed_ms)
