"""Steps that call one function of the user: for each record, or for each record and timer.

Sources of the rules: docs/state.md (keyed functions, timers), docs/two-inputs.md, docs/async-io.md,
docs/event-time-and-windows.md (watermarks).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from engine.explore.opinion.elements import EvaluatedStep, Mark, NotModelled, Pass, Record, Spec, is_a, own_copy
from engine.explore.opinion.plain_state import Cells, CellStates, Context, MapCell, Timers, by_encoding, copied
from state_backends.base import key_group_for


def _result(spec: Spec, record: Record, which: int) -> Any:
    return spec.given["fn" if "fn" in spec.given else f"fn{which + 1}"](record.value)


class Map(EvaluatedStep):
    """One record out for each record in, with its timestamp; of two inputs each has its own function."""

    def on_record(self, record: Record, which: int) -> None:
        self.emit(_result(self.spec, record, which), record.stamp)


class FlatMap(EvaluatedStep):
    """Any number of records out for each record in, all with its timestamp."""

    def on_record(self, record: Record, which: int) -> None:
        self.emit_all(_result(self.spec, record, which), record.stamp)


class Filter(EvaluatedStep):
    """The records for which the predicate is true."""

    def on_record(self, record: Record, which: int) -> None:
        if self.spec.given["fn"](record.value):
            self.emit(record.value, record.stamp)


class Process(EvaluatedStep):
    """A process function, with keyed state and event-time timers where the stream is keyed.

    Timers fire when the watermark reaches them, before it is sent on; their emissions have their time.
    """

    methods: tuple[str, ...] = ("process_element",)

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.cells, self.timers = Cells(), Timers()
        self.context = self._context()
        function = spec.given["function"]
        if isinstance(function, type) or hasattr(function, self.methods[0]):
            self.function = own_copy(function)
            self.calls: list[Callable[[Any, Any], Any]] = [getattr(self.function, name) for name in self.methods]
            self.function.open(self.context)
        else:
            self.function, self.calls = None, [function]

    def _context(self) -> Context:
        return Context(self, self.cells, self.timers)

    def on_record(self, record: Record, which: int) -> None:
        self._call(self.calls[which], record, self.context)

    def _call(self, call: Callable[[Any, Any], Any], record: Record, context: Context) -> None:
        self.cells.key = record.key if self.spec.keyed else None
        context.timestamp_ms = record.stamp
        self.emit_all(call(record.value, context), record.stamp)

    def on_watermark(self, ms: int) -> None:
        while (timer := self.timers.next_due(ms)) is not None:
            time_ms, self.cells.key, _ = timer
            self.context.timestamp_ms = time_ms
            self.emit_all(self.function.on_timer(time_ms, self.context), time_ms)


class CoProcess(Process):
    """The same over two inputs, which share state and timers of a key."""

    methods = ("process_element1", "process_element2")


class _ReadOnly:
    """Broadcast state as seen from the data side."""

    def __init__(self, state: MapCell) -> None:
        self.get, self.contains, self.entries = state.get, state.contains, state.entries
        self.keys, self.values, self.is_empty = state.keys, state.values, state.is_empty

    def _refuse(self, *_: Any) -> None:
        raise TypeError("broadcast state can only be read while data is processed")

    put = put_all = remove = clear = _refuse


class _BroadcastContext(Context):
    """``writes``: whether this is the context of the broadcast side, which may change the states and has no key."""

    def __init__(self, step: BroadcastProcess, *, writes: bool) -> None:
        super().__init__(step, step.cells, step.timers)
        self._owner, self._writes = step, writes

    def broadcast_state(self, state: Any) -> Any:
        """One of the states that ``broadcast(...)`` declared."""
        found = self._owner.broadcasts[getattr(state, "name", state)]
        return found if self._writes else _ReadOnly(found)

    def apply_to_keyed_state(self, state: Any, function: Callable[[Any, Any], None]) -> None:
        """For all keys with this state in the subtask, ordered by key group and encoded key."""
        cells = self._owner.cells
        kind = type(state).__name__.removesuffix("StateDescriptor").lower()
        more = {"value": (getattr(state, "default", None),), "reducing": (getattr(state, "reduce", None),)}
        if kind not in ("value", "list", "map", "reducing"):
            raise NotModelled(f"it applies a function to {type(state).__name__}")
        handle = getattr(CellStates(cells), f"{kind}_state")(state.name, *more.get(kind, ()))
        for key in sorted(cells.named(state.name), key=lambda one: (self._owner.group_of(one), by_encoding(one))):
            cells.key = key
            function(key, handle)
        cells.key = None


class BroadcastProcess(Process):
    """Input 1 is the data; input 2 goes to every subtask, and each subtask keeps its own broadcast states."""

    methods = ("process_element", "process_broadcast_element")

    def __init__(self, spec: Spec) -> None:
        shared = Cells()
        shared.key = 0
        self.broadcasts = {name: MapCell(shared, name) for name in spec.given["state_names"]}
        super().__init__(spec)
        self._writing = _BroadcastContext(self, writes=True)

    def _context(self) -> Context:
        return _BroadcastContext(self, writes=False)

    def on_record(self, record: Record, which: int) -> None:
        self._call(self.calls[which], record, self._writing if which else self.context)

    def group_of(self, key: Any) -> int:
        return key_group_for(key, self.spec.given["max_parallelism"])


class Reduce(EvaluatedStep):
    """For every record the reduction of its key so far; the first value is unchanged."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._reduced: dict[Any, Any] = {}

    def on_record(self, record: Record, which: int) -> None:
        key, value = record.key, record.value
        if key in self._reduced:
            value = self.spec.given["fn"](self._reduced[key], value)
        self._reduced[key] = copied(value)
        self.emit(value, record.stamp)


class Aggregate(EvaluatedStep):
    """For every record ``(key, result so far)``."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._so_far: dict[Any, Any] = {}

    def on_record(self, record: Record, which: int) -> None:
        function, key = self.spec.given["aggregate_function"], record.key
        so_far = self._so_far[key] if key in self._so_far else function.create()
        self._so_far[key] = function.add(so_far, record.value)
        self.emit((key, function.get_result(self._so_far[key])), record.stamp)


class Watermarks:
    """The watermark of one split or stream: the largest event time so far, minus the bound, minus 1."""

    def __init__(self, strategy: Any) -> None:
        if not is_a(strategy, "operators.time.watermarks.WatermarkStrategy"):
            raise NotModelled(f"its watermarks come from {type(strategy).__name__}")
        self.strategy = strategy
        self.ms = MIN_TIMESTAMP_MS

    def stamped(self, record: Record) -> Record:
        """With the event time of the strategy; without a strategy's time it keeps its own."""
        function = self.strategy.timestamp_fn
        if function is not None:
            record = record._replace(stamp=function(record.value))
        if self.strategy.bound_ms is not None and record.stamp is not None:
            self.ms = max(self.ms, record.stamp - self.strategy.bound_ms - 1)
        return record


class Timestamps(EvaluatedStep):
    """New event times and watermarks. Incoming watermarks end here, except the one that ends the stream.

    Watermarks follow at intervals of time, so the order decides how many records lie between two; before a pause one is
    always sent.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._watermarks = Watermarks(spec.given["strategy"])
        if spec.given["strategy"].idle_timeout_ms is not None:
            raise NotModelled("it finds out by the virtual clock that its input is idle")
        self._since = 0

    def take(self, record: Record, which: int = 0) -> None:
        if record.at_ms > self.at_ms:
            self._send()
        super().take(record, which)

    def on_record(self, record: Record, which: int) -> None:
        record = self._watermarks.stamped(record)
        self.emit(record.value, record.stamp)
        self._since += 1
        if self._since == self.spec.order.every:
            self._send()

    def _send(self) -> None:
        self._since = 0
        if self._watermarks.ms > self.watermark_ms:
            self.watermark_ms = self._watermarks.ms
            self.mark(Mark(self.watermark_ms))

    def take_mark(self, mark: Mark) -> None:
        if mark.ms == MAX_TIMESTAMP_MS:
            super().take_mark(mark)


class _Request(NamedTuple):
    """The facts that a service may use besides the record."""

    attempt: int
    timestamp_ms: int | None

    @property
    def processing_time_ns(self) -> int:
        raise NotModelled("its service asks for the virtual clock, which depends on costs and schedules")


class AsyncMap(EvaluatedStep):
    """The answers to each record: in the order of the records, or in any order between two watermarks.

    The service says how long an answer takes, so retries and the timeout (of all attempts together) can be computed.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._held: list[tuple[list[Any], int | None]] = []

    def on_record(self, record: Record, which: int) -> None:
        answer = self._answer(record)
        if self.spec.given.get("ordered", True) or not self.spec.order.last:
            self.emit_all(answer, record.stamp)
        else:
            self._held.append((answer, record.stamp))

    def on_watermark(self, ms: int) -> None:
        held, self._held = self._held, []
        for answer, stamp in reversed(held):
            self.emit_all(answer, stamp)

    def _answer(self, record: Record) -> list[Any]:
        given = self.spec.given
        retries, timeout_ms, spent_ns, attempt = given.get("retries"), given.get("timeout_ms"), 0, 1
        while True:
            result = given["function"].invoke(record.value, _Request(attempt, record.stamp))
            spent_ns += result.after_ns
            if timeout_ms is not None and spent_ns > timeout_ms * 1_000_000:
                if given.get("on_timeout") is None:
                    raise TimeoutError(f"no answer for {record.value!r} in {timeout_ms} ms")
                return list(given["on_timeout"](record.value))
            if retries is None or not retries.wants(result, attempt):
                break
            spent_ns += retries.delay_after(attempt)
            attempt += 1
        if result.error is not None:
            raise result.error
        return list(result.values)


STEPS: dict[str, Callable[[Spec], EvaluatedStep]] = {
    "operators.basic.stateless.MapOperator": Map,
    "operators.basic.stateless.FlatMapOperator": FlatMap,
    "operators.basic.stateless.FilterOperator": Filter,
    "operators.basic.stateless.ProcessOperator": Process,
    "operators.basic.stateless.IterationHeadOperator": Pass,
    "operators.basic.keyed.ReduceOperator": Reduce,
    "operators.basic.keyed.KeyedAggregateOperator": Aggregate,
    "operators.basic.keyed_process.KeyedProcessOperator": Process,
    "operators.basic.co_process.CoMapOperator": Map,
    "operators.basic.co_process.CoFlatMapOperator": FlatMap,
    "operators.basic.co_process.CoProcessOperator": CoProcess,
    "operators.basic.co_process.KeyedCoProcessOperator": CoProcess,
    "operators.basic.broadcast_process.BroadcastProcessOperator": BroadcastProcess,
    "operators.basic.broadcast_process.KeyedBroadcastProcessOperator": BroadcastProcess,
    "operators.time.watermarks.TimestampsAndWatermarksOperator": Timestamps,
    "operators.async_io.async_wait_operator.AsyncWaitOperator": AsyncMap,
}
"""By the full name of the operator's class."""
