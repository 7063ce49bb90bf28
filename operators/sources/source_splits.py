"""The splits of a source operator: as they run, and as they stand in the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.elements.source import SplitReader
from operators.time import IDLENESS
from state_backends.base import Shape, anything, flag, number, optional, row, text, whole

NO_SPLIT = ""
"""Stands for a split in watermarks, as long as a reader has none."""


class SavedSplit(NamedTuple):
    """One split in the snapshot. The last two belong to the subtask and are the same in all its splits."""

    id: str
    position: Any
    finished: bool
    turn_left: int
    generator: int | None
    idleness: tuple[bool, bool, int | None] | None
    last_watermark_ms: int
    until_next_watermark_ns: int


def saved_shape(source: object) -> Shape:
    """The shape of a split in the snapshot; a source may define that of its positions."""
    position = getattr(source, "position_shape", anything)
    return row(text, optional(position), flag, whole, optional(number), optional(IDLENESS), number, whole)


@dataclass(slots=True)
class RunningSplit:
    """One split of this subtask. While ``reader`` is ``None``, ``position`` is where to open it."""

    id: str
    position: Any = None
    finished: bool = False
    turn_left: int = 0
    reader: SplitReader | None = None
    available_at_ns: int | None = None
    """When there may be records again; ``None``: now."""
    asked_again: bool = False
    """It had no records, but reported that some are available now."""
