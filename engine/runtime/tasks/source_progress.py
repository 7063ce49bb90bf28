"""How far the sources of a run are, and when a checkpoint interval that counts records is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SourceProgress:
    """Counts what all sources of a run emit, ``batch_size`` records at a time. Each time that ``interval`` more are
    emitted, ``interval_over`` is called."""

    def __init__(self, batch_size: int, interval: int | None, interval_over: Callable[[], None]) -> None:
        self.records = 0
        """Emitted, in all attempts together."""
        self.interval = interval
        self.missing = interval or 0
        """Records to the end of the interval."""
        self._batch_size = batch_size
        self._interval_over = interval_over

    def begin_interval(self) -> None:
        """An interval begins now."""
        self.missing = self.interval or 0

    def emitted(self, records: int) -> None:
        """A source has emitted further records."""
        self.records += records
        if self.interval is not None:
            self.missing -= records
            if self.missing <= 0:
                self.missing += self.interval
                self._interval_over()

    def slice_records(self) -> int:
        """How many records a source may emit in one go: a batch, or what is missing to the end of the interval."""
        batch_size = self._batch_size
        if self.interval is None:
            return batch_size
        return max(1, min(batch_size, self.missing))
