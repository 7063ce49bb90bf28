"""Evaluates a job: passes the elements of its sources through its operators, one at a time, in one order.

No task, no batch, no buffer of bounded size, no barrier and no failure: a channel is a list. At every moment some
channels have elements; the :class:`engine.explore.opinion.elements.Order` says whose first one is handled next.

Rules.

* A channel keeps the order of its elements (docs/architecture.md). Otherwise only pauses of sources give an order.
* The watermark of a subtask is the least of its channels that are not idle, of both inputs together; it never falls.
* Watermarks do not travel on feedback edges. The head of a loop sees the end of its input only when no element is under
  way any more (docs/iterations.md).
* The result of an operator may be unknown here (:class:`NotModelled`). Then everything after it is unknown too, and the
  rest of the job is evaluated without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError
from engine.explore.opinion import column_steps, function_steps, joins, patterns, ranking, sink_outputs, windows
from engine.explore.opinion.elements import Element, EvaluatedStep, Mark, NotModelled, Order, Pass, Record, Spec
from engine.explore.opinion.plan_reading import Place, closure_of, depths_of, given_of, route_of, spec_of
from engine.explore.opinion.source_elements import Input, Ranges, SubtaskInput, read_source
from engine.graph.distribution_patterns import connections
from engine.graph.plan import EdgePlan, ExecutionPlan, OperatorPlan, VertexPlan
from operators.sources import source_of
from state_backends.files import FileSystem

STEPS: Mapping[str, Callable[[Spec], EvaluatedStep]] = {
    **function_steps.STEPS,
    **windows.STEPS,
    **joins.STEPS,
    **ranking.STEPS,
    **patterns.STEPS,
    **column_steps.STEPS,
}

MOST_ELEMENTS = 5_000_000
"""Limit of elements handled in one evaluation, because a loop may never end."""


def read_inputs(
    plan: ExecutionPlan, files: FileSystem, dropped: Mapping[str, Ranges]
) -> tuple[dict[Place, Input], dict[Place, str]]:
    """The records that every source reads, and why some sources cannot be read here. ``dropped``: by ``uid/split``."""
    found: dict[Place, Input] = {}
    unknown: dict[Place, str] = {}
    for vertex in plan.vertices:
        if vertex.is_source:
            operator, at = vertex.operators[0], (vertex.index, 0)
            prefix = f"{operator.uid}/"
            mine = {name.removeprefix(prefix): out for name, out in dropped.items() if name.startswith(prefix)}
            try:
                found[at] = _read(operator, files, mine)
            except NotModelled as reason:
                unknown[at] = f"source {operator.name!r}: {reason}"
    return found, unknown


def _read(operator: OperatorPlan, files: FileSystem, dropped: Mapping[str, Ranges]) -> Input:
    factory: Any = operator.factory
    source = source_of(factory)
    if source is None:
        raise NotModelled("its operator is of a kind that is not known")
    if isinstance(factory, partial):
        given = given_of(factory.func, factory)
        read = Input(given.get("watermark_strategy"), given.get("records_per_turn", 256))
    else:
        read = Input(factory.watermarks, given_out=True)
        if getattr(factory.source, "monitor_interval_ms", None) is not None:
            raise NotModelled("it looks for new files for ever")
    return read_source(read, source, operator.name, files, dropped)


@dataclass(slots=True)
class Evaluated:
    """``rows``: by sink, its records; ``unknown``: by sink, why these are not known."""

    rows: dict[str, sink_outputs.Rows] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


def evaluate(plan: ExecutionPlan, inputs: Mapping[Place, Input], unknown: dict[Place, str], order: Order) -> Evaluated:
    """The output that the job commits when its records are handled in this order. ``unknown`` operators are left out;
    operators found unknown on the way are added to it.

    Raises any exception of a user function.
    """
    while True:
        evaluation = _Evaluation(plan, inputs, unknown, order)
        try:
            return evaluation.run()
        except NotModelled as reason:
            at = evaluation.place
            operator = plan.vertices[at[0]].operators[at[1]]
            assert at not in unknown, at
            unknown[at] = f"operator {operator.name!r}: {reason}"


class _Channel:
    def __init__(self, number: int, receiver: _Subtask, which: int, *, is_feedback: bool) -> None:
        self.number, self.receiver, self.which, self.is_feedback = number, receiver, which, is_feedback
        self.elements: deque[Element] = deque()
        self.handled = 0
        self.watermark_ms, self.idle = MIN_TIMESTAMP_MS, False


class _Subtask:
    """The chain of one vertex in one subtask: its head gets records and watermarks."""

    def __init__(self, vertex: int, depth: int) -> None:
        self.vertex, self.depth = vertex, depth
        self.head: EvaluatedStep
        self.channels: list[_Channel] = []
        self.is_loop_head = False
        self._idle = False

    def take(self, channel: _Channel, element: Element) -> None:
        if isinstance(element, Record):
            self.head.take(element, channel.which)
            return
        if element.idle is None:
            channel.watermark_ms = max(channel.watermark_ms, element.ms)
        else:
            channel.idle = element.idle
        self.settle(element.at_ms)

    def settle(self, at_ms: int, *, ends: bool = False) -> None:
        """Send on the watermark that the channels have reached together."""
        forward = [channel for channel in self.channels if not channel.is_feedback]
        active = [channel.watermark_ms for channel in forward if not channel.idle]
        if active and (min(active) < MAX_TIMESTAMP_MS or not self.is_loop_head or ends):
            self.head.take_mark(Mark(min(active), at_ms))
        if (not active) != self._idle:
            self._idle = not active
            self.head.take_mark(Mark(at_ms=at_ms, idle=self._idle))


class _Evaluation:
    def __init__(
        self, plan: ExecutionPlan, inputs: Mapping[Place, Input], unknown: Mapping[Place, str], order: Order
    ) -> None:
        self._plan, self._inputs, self._order = plan, inputs, order
        self.place: Place = (0, 0)
        """The operator that is being made or is running."""
        self._unknown = closure_of(plan, unknown)
        self._ready: list[tuple[Any, ...]] = []
        self._channels: list[_Channel] = []
        self._noise = order.mixed
        self._depths = depths_of(plan)
        self._sinks: dict[Place, list[sink_outputs.SinkRows]] = {}

    def run(self) -> Evaluated:
        subtasks = {
            (vertex.index, number): _Subtask(vertex.index, self._depths[vertex.index])
            for vertex in self._plan.vertices
            for number in range(vertex.parallelism)
        }
        channels = {edge.index: self._channels_of(edge, subtasks) for edge in self._plan.edges}
        for vertex in self._plan.vertices:
            for number in range(vertex.parallelism):
                self._chain(vertex, number, subtasks[vertex.index, number], channels)
        for vertex in self._plan.vertices:
            if vertex.is_source and (vertex.index, 0) not in self._unknown:
                self._feed(vertex, subtasks)
        self._handle_all(subtasks)
        return self._result()

    # --- the graph ----------------------------------------------------------------------------------------

    def _channels_of(
        self, edge: EdgePlan, subtasks: Mapping[tuple[int, int], _Subtask]
    ) -> dict[tuple[int, int], _Channel]:
        """By sender and receiver; unknown operators send nothing."""
        if (edge.source_vertex, edge.source_position) in self._unknown or (edge.target_vertex, 0) in self._unknown:
            return {}
        senders = self._plan.vertices[edge.source_vertex].parallelism
        receivers = self._plan.vertices[edge.target_vertex].parallelism
        found = {}
        for sender in range(senders):
            for receiver in connections(edge.partitioner.pointwise, senders, receivers)[sender]:
                target = subtasks[edge.target_vertex, receiver]
                channel = self._new_channel(target, edge.target_input, is_feedback=edge.is_feedback)
                target.is_loop_head |= edge.is_feedback
                found[sender, receiver] = channel
        return found

    def _new_channel(self, target: _Subtask, which: int, *, is_feedback: bool = False) -> _Channel:
        channel = _Channel(len(self._channels), target, which, is_feedback=is_feedback)
        self._channels.append(channel)
        target.channels.append(channel)
        return channel

    def _chain(
        self,
        vertex: VertexPlan,
        number: int,
        subtask: _Subtask,
        channels: Mapping[int, Mapping[tuple[int, int], _Channel]],
    ) -> None:
        """Make the steps of a chain, the last one first, each with its targets."""
        steps: dict[int, EvaluatedStep] = {}
        for operator in reversed(vertex.operators):
            self.place = (vertex.index, operator.position)
            if self.place in self._unknown:
                continue
            step = steps[operator.position] = self._step(vertex, operator, number)
            for tag, position in operator.chained_outputs:
                if position in steps:
                    behind, place = steps[position], (vertex.index, position)
                    step.outlet.records.setdefault(tag, []).append(partial(self._call, place, behind.take))
                    step.outlet.marks.append(partial(self._call, place, behind.take_mark))
            for tag, index in operator.edge_outputs:
                self._connect(step, tag, self._plan.edges[index], number, channels[index])
        if 0 in steps:
            subtask.head = steps[0]

    def _call(self, place: Place, handle: Callable[[Any], None], element: Element) -> None:
        before, self.place = self.place, place
        handle(element)
        self.place = before

    def _step(self, vertex: VertexPlan, operator: OperatorPlan, number: int) -> EvaluatedStep:
        spec = spec_of(vertex, operator, number, self._order)
        if vertex.is_source and operator.position == 0:
            # It passes its elements on, with their timestamps.
            return Pass(spec)
        if spec.owner is not None:
            sink = sink_outputs.sink_of(spec)
            self._sinks.setdefault((vertex.index, operator.position), []).append(sink)
            return sink
        if spec.kind not in STEPS:
            raise NotModelled(f"what {spec.kind} makes of its records is known to its own code only")
        return STEPS[spec.kind](spec)

    def _connect(
        self,
        step: EvaluatedStep,
        tag: str | None,
        edge: EdgePlan,
        sender: int,
        channels: Mapping[tuple[int, int], _Channel],
    ) -> None:
        mine = [channel for (one, _), channel in channels.items() if one == sender]
        if not mine:
            return
        route = route_of(edge, self._plan.vertices[edge.target_vertex], len(mine))

        def send(record: Record) -> None:
            record, targets = route(record)
            for target in targets:
                self._put(mine[target], record)

        def send_mark(mark: Mark) -> None:
            for channel in mine:
                self._put(channel, mark)

        step.outlet.records.setdefault(tag, []).append(send)
        if not edge.is_feedback:
            step.outlet.marks.append(send_mark)

    def _feed(self, vertex: VertexPlan, subtasks: Mapping[tuple[int, int], _Subtask]) -> None:
        self.place = (vertex.index, 0)
        read = self._inputs[self.place]
        for number in range(vertex.parallelism):
            subtask = subtasks[vertex.index, number]
            channel = self._new_channel(subtask, 0)
            for element in SubtaskInput(read, number, vertex.parallelism, self._order).elements:
                self._put(channel, element)
            if number == 0:
                for tag, record in read.aside:
                    subtask.head.emit(record.value, record.stamp, tag)

    # --- one element after the other ----------------------------------------------------------------------

    def _put(self, channel: _Channel, element: Element) -> None:
        channel.elements.append(element)
        if len(channel.elements) == 1:
            heappush(self._ready, (*self._rank(channel), channel.number))

    def _rank(self, channel: _Channel) -> tuple[int, ...]:
        """The sort key of channels: the pauses of sources first, then the order."""
        order, number = self._order, channel.number
        if order.mixed:
            # Lehmer's generator: the same numbers everywhere.
            self._noise = self._noise * 48_271 % 2_147_483_647
            return channel.elements[0].at_ms, self._noise
        depth = -channel.receiver.depth if order.deep else channel.receiver.depth
        turn = channel.handled if order.in_turn else 0
        return channel.elements[0].at_ms, depth, turn, -number if order.last else number

    def _handle_all(self, subtasks: Mapping[tuple[int, int], _Subtask]) -> None:
        handled = 0
        while True:
            while self._ready:
                channel = self._channels[heappop(self._ready)[-1]]
                element = channel.elements.popleft()
                if isinstance(element, Record):
                    channel.handled += 1
                if channel.elements:
                    heappush(self._ready, (*self._rank(channel), channel.number))
                self.place = (channel.receiver.vertex, 0)
                channel.receiver.take(channel, element)
                handled += 1
                if handled > MOST_ELEMENTS:
                    raise NotModelled(f"more than {MOST_ELEMENTS:,} elements were handled, and the job has not ended")
            for subtask in subtasks.values():
                if subtask.is_loop_head and (subtask.vertex, 0) not in self._unknown:
                    # No element is under way any more: the end of data travels round the loop.
                    self.place = (subtask.vertex, 0)
                    subtask.settle(0, ends=True)
            if not self._ready:
                return

    def _result(self) -> Evaluated:
        found = Evaluated()
        for vertex, operator in self._plan.operators():
            at = (vertex.index, operator.position)
            if at in self._unknown:
                found.unknown[operator.uid] = self._unknown[at]
            elif at in self._sinks:
                self.place = at
                found.rows[operator.uid] = sink_outputs.rows_of(self._sinks[at])
        return found


def sink_named(plan: ExecutionPlan, uid: str) -> sink_outputs.SinkRows:
    """The sink with this uid. Raises :class:`ConfigurationError` when its way of writing is not known here."""
    vertex, operator = next(one for one in plan.operators() if one[1].uid == uid)
    try:
        return sink_outputs.sink_of(spec_of(vertex, operator, 0, Order("")))
    except NotModelled as reason:
        raise ConfigurationError(
            f"expected() gives records for sink {uid!r}: {reason}\n  fix: give rows as texts, as readers see them"
        ) from None
