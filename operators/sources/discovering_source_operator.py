"""The operator of a source that gains splits while the job runs (Flink: partition discovery of ``KafkaSource``).

Rules
-----
* Every subtask lists the splits again once per ``discovery_interval_ms``, first one interval after it has started. It
  takes up those that it does not know and that have its number modulo the parallelism. So the list may only grow at its
  end. Splits are read from their beginning, whatever the job does with those that were there at its start.
* A split that was taken up is in the subtask's state from the next checkpoint on, with its position. All subtasks of a
  restored job know the splits that any of them had. A split that came after the checkpoint is found again, and read
  from its beginning again.
* The operator never ends. A subtask without a split becomes idle after the timeout of the watermark strategy.
* A failed listing is counted (``numEnumerationsFailed``) and skipped, new splits are counted in
  ``numSplitsDiscovered``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from engine.elements.errors import ConfigurationError, StorageError, check_whole
from engine.elements.operator import OperatorFactory
from operators.sources.source_operator import DEFAULT_RECORDS_PER_TURN, SourceOperator
from operators.sources.source_splits import NO_SPLIT, RunningSplit

if TYPE_CHECKING:
    from engine.elements.source import Source
    from operators.time import WatermarkStrategy


class DiscoveringSourceOperator(SourceOperator):
    """See the module."""

    def __init__(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        *,
        records_per_turn: int = DEFAULT_RECORDS_PER_TURN,
        discovery_interval_ms: int,
    ) -> None:
        super().__init__(source, watermark_strategy, records_per_turn=records_per_turn)
        self._interval_ns = discovery_interval_ms * 1_000_000
        self._known: dict[str, None] = {}
        self._next_pass_ns = 0

    def open(self) -> None:
        super().open()
        self._known = dict.fromkeys(split.id for split in self._splits)
        self._known |= dict.fromkeys(split for known in self._started.get() for split in known)
        self._plan_pass()

    def _timed_splits(self) -> list[str]:
        return super()._timed_splits() or [NO_SPLIT]

    def _plan_pass(self) -> None:
        self._next_pass_ns = self.context.processing_time_ns() + self._interval_ns
        self.context.register_processing_timer_ns(self._next_pass_ns)

    def on_processing_time_ns(self, time_ns: int) -> None:
        if self._next_pass_ns <= self.context.processing_time_ns():
            self._discover()
            self._plan_pass()
        super().on_processing_time_ns(time_ns)

    def _discover(self) -> None:
        context = self.context
        try:
            ids = self._source.splits(self._source_context)
        except (OSError, ConfigurationError, StorageError):
            context.metrics.count("numEnumerationsFailed")
            return
        for split_id in ids[context.subtask :: context.parallelism]:
            if split_id not in self._known:
                self._known[split_id] = None
                self._add_split(RunningSplit(split_id, getattr(self._source, "gained_position", None)))
                context.metrics.count("numSplitsDiscovered")

    def _may_go_on(self) -> bool:
        return True

    def available_at_ns(self, now_ns: int) -> int | None:
        # Also when the look is due: its timer waits until the source has paused.
        look_ns = max(self._next_pass_ns, now_ns + 1)
        at_ns = super().available_at_ns(now_ns) if self._unfinished else None
        return look_ns if at_ns is None else min(at_ns, look_ns)

    def fingerprint(self) -> object:
        return super().fingerprint(), self._next_pass_ns - self.context.processing_time_ns()


def discovering_factory(source: Any, watermarks: WatermarkStrategy | None) -> OperatorFactory | None:
    """Makes the operators of a source that looks for new splits; ``None`` if it does not."""
    if source.discovery_interval_ms is None:
        return None
    # Not read from the source by the operator, which may get another one that stands for it.
    interval_ms: int = source.discovery_interval_ms
    return partial(DiscoveringSourceOperator, source, watermarks, discovery_interval_ms=interval_ms)


def check_discovery(interval_ms: int | None, *, bounded: bool, reads_all: bool = True) -> None:
    """Raises :class:`ConfigurationError` when the interval is not valid, or the source cannot gain splits."""
    check_whole("discovery_interval_ms", interval_ms, or_none=True)
    if interval_ms is not None and (bounded or not reads_all):
        why = "a bounded source ends with" if bounded else "partitions= names"
        raise ConfigurationError(
            f"discovery_interval_ms={interval_ms} looks for new partitions, and {why} the partitions that there are\n"
            f"  fix: leave it out, or {'set bounded=False' if bounded else 'leave out partitions='}"
        )
