"""The row batch: the unit in which records move, chosen so that no per-record object is ever built.

Its counterpart in columns, :class:`engine.elements.columns.ColumnBatch`, can be used like any row batch.

A batch is a view on parallel lists. Its size is a setting (1 for lessons and exploration, thousands for throughput)
and has no meaning: a barrier, a timer or the end of a virtual time slice may cut it at any record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MIN_TIMESTAMP_MS = -(2**63)
"""Event time before every record: the watermark of a stream that has seen nothing (Flink: ``Long.MIN_VALUE``)."""

MAX_TIMESTAMP_MS = 2**63 - 1
"""Event time after every record: the watermark that ends a bounded stream (Flink: ``Watermark.MAX_WATERMARK``)."""


class Batch:
    """Records in order, as parallel lists of equal length.

    ``values``      the records themselves;
    ``timestamps``  event times in ms since the epoch, or ``None`` when the stream carries none;
    ``keys``        the key of each record, or ``None`` when the stream is not keyed;
    ``size``        how many there are: ``len`` of the batch, without a call.

    The lists are shared between operators and never mutated after the batch was emitted.
    """

    __slots__ = ("keys", "size", "timestamps", "values")

    def __init__(self, values: list[Any], timestamps: list[int] | None = None, keys: list[Any] | None = None) -> None:
        self.values = values
        self.size = len(values)
        self.timestamps = timestamps
        self.keys = keys

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"Batch(values={self.values!r}, timestamps={self.timestamps!r}, keys={self.keys!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.values == other.values and self.timestamps == other.timestamps and self.keys == other.keys

    __hash__ = None  # type: ignore[assignment]

    def split(self, at: int) -> tuple[Batch, Batch]:
        """The records before and from position ``at`` (``0 < at < len``), as two batches."""
        assert 0 < at < self.size, (at, self.size)
        stamps, keys = self.timestamps, self.keys
        return (
            Batch(self.values[:at], stamps and stamps[:at], keys and keys[:at]),
            Batch(self.values[at:], stamps and stamps[at:], keys and keys[at:]),
        )

    def take(self, positions: Sequence[int]) -> Batch:
        """The records at ``positions``, in that order."""
        stamps, keys = self.timestamps, self.keys
        return Batch(
            list(map(self.values.__getitem__, positions)),
            stamps and list(map(stamps.__getitem__, positions)),
            keys and list(map(keys.__getitem__, positions)),
        )
