"""Asynchronous requests: records are sent on when an external service has answered (Flink: ``AsyncWaitOperator``).

Rules.

* At most ``capacity`` requests are in flight: begun, and their answers not yet sent on. While the operator holds that
  many records, the task takes no more input, not even barriers, unless they overtake. The other records of the batch
  wait without a request, and count as in flight. So the batch size has no effect.
* Records in flight are in every snapshot, in the order in which they came; after a restore they are requested again.
  Requests are made at least once, answers have their effect exactly once.
* ``timeout_ms`` covers all attempts of a record together, from the first one. An answer exactly at the timeout is in
  time.
* A watermark does not overtake records. After the last watermark the operator takes no input while a record is in
  flight, because timers do not fire after the end of the data. A loop with records in flight is not over.
* The operator is the head of its chain: in a chain, the operator before it could not be kept from emitting.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, check_whole, shorten
from engine.elements.operator import Operator
from operators.async_io.async_function import (
    AsyncContext,
    AsyncFunction,
    AsyncResult,
    AsyncRetryStrategy,
    AsyncTimeoutError,
    FixedLatency,
)
from operators.async_io.element_queue import ElementQueue, QueuedRecord
from state_backends.base import anything, number, optional, row

if TYPE_CHECKING:
    from engine.observe.provenance import Lineage

_STATE = "_async_wait_operator_state_"
_RETRY, _TIMEOUT = "retry", "timeout"

Outcome = AsyncResult | str
"""The result of an attempt, or the event due instead of it."""


class AsyncWaitOperator(Operator):
    """``ordered``: whether answers leave in the order of their records; ``on_timeout(record)``: the records to emit
    after a timeout, instead of failing the job."""

    def __init__(
        self,
        function: AsyncFunction,
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout_ms: int | None = None,
        retries: AsyncRetryStrategy | None = None,
        on_timeout: Callable[[Any], Iterable[Any]] | None = None,
    ) -> None:
        check_whole("async_map: capacity", capacity)
        check_whole("async_map: timeout_ms", timeout_ms, or_none=True)
        if on_timeout is not None and timeout_ms is None:
            raise ConfigurationError("async_map: on_timeout= is never called without timeout_ms=; give both")
        if on_timeout is not None and not callable(on_timeout):
            raise ConfigurationError(
                f"async_map: on_timeout takes a function of the record that returns records, got {shorten(on_timeout)}"
            )
        self._function = function
        self._capacity = capacity
        self._timeout_ns = None if timeout_ms is None else timeout_ms * 1_000_000
        self._retries = retries
        self._on_timeout = on_timeout
        self._queue = ElementQueue(ordered=ordered)
        self._waiting: deque[QueuedRecord] = deque()
        """Records whose first request has not begun."""
        self._begun = 0
        """Records whose first request has begun, and whose answer has not left."""
        self._due: list[tuple[int, int, QueuedRecord, Outcome]] = []
        self._numbered = 0
        self._armed_ns: int | None = None
        self._has_ended = False

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state(_STATE, row(anything, optional(number)))

    def open(self) -> None:
        for value, timestamp_ms in self._state.get():
            self._waiting.append(self._queue.put(value, timestamp_ms))
        self._go_on(self.context.processing_time_ns())

    # --- input ------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        put, stamps = self._queue.put, batch.timestamps
        if self.lineage is not None:
            for value in batch.values:
                self.lineage.waits(1, repr(value))
        if stamps is None:
            self._waiting.extend([put(value, None) for value in batch.values])
        else:
            self._waiting.extend(map(put, batch.values, stamps))
        self._go_on(self.context.processing_time_ns())

    def process_watermark(self, timestamp_ms: int) -> None:
        self._has_ended = timestamp_ms == MAX_TIMESTAMP_MS
        if self._queue.is_empty:
            self.output.emit_watermark(timestamp_ms)
            return
        self._queue.put_event(("watermark", timestamp_ms))
        self._hold_or_release()

    def process_watermark_status(self, idle: bool) -> None:
        if self._queue.is_empty:
            self.output.emit_watermark_status(idle)
        else:
            self._queue.put_event(("idle", idle))

    def on_processing_time_ns(self, time_ns: int) -> None:
        if self._armed_ns is not None and self._armed_ns <= time_ns:
            self._armed_ns = None
        self._complete(time_ns)

    def finish(self) -> None:
        # Records are left only if the input ended without a last watermark. Timers do not fire any more, so their
        # remaining time passes here.
        while self._due:
            self._complete(self._due[0][0])
        assert self._queue.is_empty, f"{self.context.name}: records in flight at the end"

    # --- requests ---------------------------------------------------------------------------------------------------

    def _complete(self, time_ns: int) -> None:
        """Handle due attempts, send on the elements that may leave, and begin requests while there is room."""
        due = self._due
        while due and due[0][0] <= time_ns:
            _, _, entry, outcome = heapq.heappop(due)
            if isinstance(outcome, AsyncResult):
                self._queue.settle(entry, self._records_of(entry, outcome))
            elif outcome == _RETRY:
                self.context.metrics.count("numAsyncRetries")
                self._attempt(entry, time_ns)
            else:
                self._queue.settle(entry, self._give_up(entry))
        self._send_on()
        self._go_on(time_ns)

    def _go_on(self, now_ns: int) -> None:
        waiting = self._waiting
        while waiting and self._begun < self._capacity:
            entry = waiting.popleft()
            self._begun += 1
            if self._timeout_ns is not None:
                entry.deadline_ns = now_ns + self._timeout_ns
            self._attempt(entry, now_ns)
        if self._due and self._due[0][0] != self._armed_ns:
            self._armed_ns = self._due[0][0]
            self.context.register_processing_timer_ns(self._armed_ns)
        self._hold_or_release()

    def _hold_or_release(self) -> None:
        if len(self._queue) >= self._capacity or (self._has_ended and not self._queue.is_empty):
            self.context.hold_input()
        else:
            self.context.release_input()

    def _attempt(self, entry: QueuedRecord, now_ns: int) -> None:
        """Make a request. Its result is known at once, and so is whether the timeout comes first."""
        entry.attempt += 1
        try:
            result = self._function.invoke(entry.value, AsyncContext(entry.attempt, entry.timestamp_ms, now_ns))
            if not isinstance(result, AsyncResult):
                raise TypeError(f"invoke returns an AsyncResult, not {result!r}")
            if type(result.after_ns) is not int or result.after_ns < 0:
                raise TypeError(f"after_ns is a whole number of ns, at least 0, not {result.after_ns!r}")
            wants_retry = self._retries is not None and self._retries.wants(result, entry.attempt)
        except Exception as error:
            raise self.user_error("asynchronous function", entry.value, error) from error
        at_ns = now_ns + result.after_ns
        due: Outcome = result
        if wants_retry:
            assert self._retries is not None
            at_ns, due = at_ns + self._retries.delay_after(entry.attempt), _RETRY
        if entry.deadline_ns is not None and at_ns > entry.deadline_ns:
            at_ns, due = entry.deadline_ns, _TIMEOUT
        self._numbered += 1
        heapq.heappush(self._due, (at_ns, self._numbered, entry, due))

    def _records_of(self, entry: QueuedRecord, result: AsyncResult) -> tuple[Any, ...]:
        if result.error is not None:
            raise self.user_error("asynchronous request", entry.value, result.error) from result.error
        return result.values

    def _give_up(self, entry: QueuedRecord) -> tuple[Any, ...]:
        self.context.metrics.count("numAsyncTimeouts")
        try:
            if self._on_timeout is None:
                assert self._timeout_ns is not None
                raise AsyncTimeoutError(
                    f"no answer within {self._timeout_ns // 1_000_000} ms, after {entry.attempt} attempts; "
                    "allow more time, or give on_timeout="
                )
            return tuple(self._on_timeout(entry.value))
        except Exception as error:
            raise self.user_error("asynchronous request", entry.value, error) from error

    # --- output -----------------------------------------------------------------------------------------------------

    def _send_on(self) -> None:
        out: list[Any] = []
        stamps: list[int | None] = []
        for element in self._queue.leaving():
            if isinstance(element, QueuedRecord):
                self._begun -= 1
                if self.lineage is not None:
                    self._emit_as(self.lineage, element)
                    continue
                out.extend(element.answer)
                stamps.extend([element.timestamp_ms] * len(element.answer))
                continue
            self._emit(out, stamps)
            out, stamps = [], []
            what, argument = element
            if what == "watermark":
                self.output.emit_watermark(argument)
            else:
                self.output.emit_watermark_status(argument)
        self._emit(out, stamps)

    def _emit_as(self, lineage: Lineage, entry: QueuedRecord) -> None:
        # The record names its answer, because every repeated request for that record gives the same answer.
        lineage.emitting(None, repr(entry.value))
        self._emit(list(entry.answer), [entry.timestamp_ms] * len(entry.answer))
        lineage.emitted()

    def _emit(self, out: list[Any], stamps: list[int | None]) -> None:
        if out:
            known = [stamp for stamp in stamps if stamp is not None]
            self.output.emit(Batch(out, known if len(known) == len(out) else None))

    # --- state ------------------------------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update([[entry.value, entry.timestamp_ms] for entry in self._queue.entries()])

    def fingerprint(self) -> object:
        now_ns = self.context.processing_time_ns()
        return (
            self._queue.fingerprint(),
            len(self._waiting),
            self._has_ended,
            tuple(
                (at_ns - now_ns, repr(entry.value), entry.attempt, repr(outcome))
                for at_ns, _, entry, outcome in sorted(self._due, key=lambda one: one[:2])
            ),
        )


def async_operator(
    function: Any,
    latency_ns: int | Callable[[Any], int] | None,
    ordered: bool,
    capacity: int,
    timeout_ms: int | None,
    retries: AsyncRetryStrategy | None,
    on_timeout: Callable[[Any], Iterable[Any]] | None,
) -> Callable[[], AsyncWaitOperator]:
    """The factory of operators of ``Stream.async_map``. Raises :class:`ConfigurationError` for invalid arguments."""
    if callable(getattr(function, "invoke", None)) and not isinstance(function, type):
        if latency_ns is not None:
            raise ConfigurationError("async_map: latency_ns= is for a plain function; an AsyncFunction says after_ns")
    elif callable(function) and not isinstance(function, type):
        if latency_ns is None:
            raise ConfigurationError(
                "async_map: a plain function says nothing of how long an answer takes\n"
                "  fix: give latency_ns=, or an object with invoke(record, context) -> AsyncResult"
            )
        function = FixedLatency(function, latency_ns)
    else:
        raise ConfigurationError(
            f"async_map: give an object with invoke(record, context), or a function, not {shorten(function)}"
        )
    if retries is not None and not isinstance(retries, AsyncRetryStrategy):
        raise ConfigurationError(f"async_map: retries must be an AsyncRetryStrategy, not {shorten(retries)}")

    create = partial(
        AsyncWaitOperator,
        function,
        ordered=ordered,
        capacity=capacity,
        timeout_ms=timeout_ms,
        retries=retries,
        on_timeout=on_timeout,
    )
    create()  # Invalid arguments fail here, where the job is built.
    return create
