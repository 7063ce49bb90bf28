"""Side outputs of a process function: collected per tag while a batch is processed, sent on at its end."""

from __future__ import annotations

from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Output


class SideOutputs:
    """Records for side outputs, in the order in which each tag first appeared.

    They are sent before the batch ends, so no record is held back at a barrier after the batch.
    """

    __slots__ = ("_by_tag",)

    def __init__(self) -> None:
        self._by_tag: dict[str, tuple[list[Any], list[int | None]]] = {}

    def add(self, tag: str, value: Any, timestamp_ms: int | None) -> None:
        """Hold ``value`` for ``tag``."""
        held = self._by_tag.get(tag)
        if held is None:
            if not isinstance(tag, str):
                raise TypeError(f"a side output tag is a str, got {type(tag).__name__} {tag!r}")
            held = self._by_tag[tag] = ([], [])
        held[0].append(value)
        held[1].append(timestamp_ms)

    def flush(self, output: Output) -> None:
        """Send everything on and forget it."""
        if not self._by_tag:
            return
        by_tag, self._by_tag = self._by_tag, {}
        for tag, (values, stamps) in by_tag.items():
            known = [stamp for stamp in stamps if stamp is not None]
            # Timestamps go with all records of a batch or with none.
            output.emit_side(tag, Batch(values, known if len(known) == len(values) else None))
