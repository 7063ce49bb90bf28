"""Where the operators of a chain send their output: to the next operator of the chain, to channels, or to several.

Everything is wired once, when the task is built; per batch there is one bound call per stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from engine.elements.batch import Batch
from engine.elements.events import Event, Watermark, WatermarkStatus
from engine.elements.operator import Operator
from engine.graph.partitioner import Router
from engine.runtime.channels.channel import Channel

Emit = Callable[[Batch], None]


class RecordWriter:
    """Sends the output of one operator over one network edge (Flink: ``RecordWriter``)."""

    __slots__ = ("_route", "channels", "edge", "router", "supports_unaligned")

    def __init__(
        self, edge: int, router: Router, channels: Sequence[Channel], *, supports_unaligned: bool = True
    ) -> None:
        """``supports_unaligned``: whether barriers may overtake records on this edge."""
        self.edge = edge
        self.supports_unaligned = supports_unaligned
        self.router = router
        self.channels = tuple(channels)
        self._route = router.route

    def emit(self, batch: Batch) -> None:
        """Spread the records over the channels."""
        if batch.size:
            channels = self.channels
            for index, part in self._route(batch):
                channels[index].put_batch(part)

    def broadcast(self, event: Event) -> None:
        """Send ``event`` on every channel."""
        for channel in self.channels:
            channel.put_event(event)


def _discard(batch: Batch) -> None:
    """The output of a sink, or of a side output without a reader."""


class ChainOutput:
    """The :class:`~engine.elements.operator.Output` of one operator inside a task."""

    __slots__ = ("_side", "_side_operators", "_side_writers", "emit", "operators", "writers")

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.writers: list[RecordWriter] = []
        self._side: dict[str, list[Emit]] = {}
        self._side_operators: list[Operator] = []
        self._side_writers: list[RecordWriter] = []
        self.emit: Emit = _discard

    def connect_operator(self, tag: str | None, operator: Operator) -> None:
        """Feed ``operator`` of the same chain, with the main output or side output ``tag``."""
        if tag is None:
            self.operators.append(operator)
        else:
            self._side.setdefault(tag, []).append(operator.process_batch)
            self._side_operators.append(operator)

    def connect_writer(self, tag: str | None, writer: RecordWriter) -> None:
        """Feed a network edge, with the main output or side output ``tag``."""
        if tag is None:
            self.writers.append(writer)
        else:
            self._side.setdefault(tag, []).append(writer.emit)
            self._side_writers.append(writer)

    def seal(self) -> None:
        """Bind ``emit`` to the one receiver there is, or to the loop over several."""
        receivers: list[Emit] = [operator.process_batch for operator in self.operators]
        receivers += [writer.emit for writer in self.writers]
        if len(receivers) == 1:
            self.emit = receivers[0]
        elif receivers:
            self.emit = partial(_emit_to_all, receivers)

    def emit_watermark(self, timestamp_ms: int) -> None:
        """Watermarks go to every receiver, side outputs included (Flink: ``CountingOutput.emitWatermark``)."""
        for operator in (*self.operators, *self._side_operators):
            operator.process_watermark(timestamp_ms)
        for writer in (*self.writers, *self._side_writers):
            writer.broadcast(Watermark(timestamp_ms))

    def emit_watermark_status(self, idle: bool) -> None:
        """Like watermarks, idleness concerns every receiver."""
        for operator in (*self.operators, *self._side_operators):
            operator.process_watermark_status(idle)
        for writer in (*self.writers, *self._side_writers):
            writer.broadcast(WatermarkStatus(idle))

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Records of side output ``tag``."""
        for receive in self._side.get(tag, ()):
            if len(batch):
                receive(batch)


def _emit_to_all(receivers: list[Emit], batch: Batch) -> None:
    for receive in receivers:
        receive(batch)
