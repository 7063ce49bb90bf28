"""A source that is called back with the outcome of each record in mode ``acking``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.elements.errors import check_whole
from engine.elements.operator import OperatorFactory
from engine.elements.source import AckingListener, Source, SourceContext, SplitReader, SpoutMessage
from operators.sources.source_operator import reading_from

if TYPE_CHECKING:
    from operators.time import WatermarkStrategy


def _nothing(message: SpoutMessage) -> None:
    """For a callback that was not given."""


class _Callbacks:
    def __init__(
        self, ack: Callable[[SpoutMessage], None], fail: Callable[[SpoutMessage], None], max_pending: int | None
    ) -> None:
        self.ack = ack
        self.fail = fail
        self.max_pending = max_pending


class SpoutSource:
    """The records of ``inner``, with callbacks (Storm: ``ISpout.ack`` and ``fail``).

    ``ack(message)``      all tuples made from ``message.value`` have been handled;
    ``fail(message)``     a function has failed it, or it has timed out; it is sent again;
    ``max_pending``       most records of a subtask that wait for their acknowledgement (Storm:
                          ``topology.max.spout.pending``); ``None``: as the run says.

    The id of a message is its split and its number. After the death of the source numbers begin anew at the committed
    position. In other modes nothing is called back. Callbacks must not keep state that the job depends on.
    """

    def __init__(
        self,
        inner: Source,
        *,
        ack: Callable[[SpoutMessage], None] | None = None,
        fail: Callable[[SpoutMessage], None] | None = None,
        max_pending: int | None = None,
    ) -> None:
        if max_pending is not None:
            check_whole("max_pending", max_pending)
        self.inner = inner
        self._callbacks = _Callbacks(ack or _nothing, fail or _nothing, max_pending)

    def operator_factory(self, watermarks: WatermarkStrategy | None) -> OperatorFactory | None:
        """Those of an inner source that makes its operators itself, reading from this one; ``None`` if it does not."""
        make = getattr(self.inner, "operator_factory", None)
        factory = None if make is None else make(watermarks)
        # Those of the inner source would call nothing back.
        return None if factory is None else reading_from(factory, self)

    def acking_listener(self, context: SourceContext) -> AckingListener:
        """See :class:`engine.elements.source.AckingListener`."""
        return self._callbacks

    def splits(self, context: SourceContext) -> Sequence[str]:
        return self.inner.splits(context)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        return self.inner.open_split(split, position, context)

    def __getattr__(self, name: str) -> Any:
        """What else the inner source may offer."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)
