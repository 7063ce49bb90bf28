"""The words of a ledger for records, cells, outputs, and the restart that explains a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.explore.ledger.ledger_entries import KEY, OUTPUT, Origin, Place, RecordCause, Restart
from engine.explore.ledger.ranges import Range

if TYPE_CHECKING:
    from engine.explore.ledger.ledger import EffectLedger

_SHOWN = 5
"""How many ranges or places are named; the rest is counted."""


def records_text(ledger: EffectLedger, origin: Origin, ranges: Sequence[Range]) -> str:
    """``20 records, 100-119 of numbers/0``; for emissions of an operator: ``emission 3 of window[key 'a']``."""
    count = sum(end - first for first, end in ranges)
    noun = "record" if origin.is_source else "emission"
    head = noun if count == 1 else f"{count} {noun}s,"
    text = f"{head} {ranges_text(ranges)} of {origin_name(ledger, origin)}"
    batch = ledger.batch(origin, ranges[0][0])
    if batch is not None:
        parts = [
            f"{ranges_text(layers[0].ranges())} of {origin_name(ledger, ledger.origins[number])}"
            for number, layers in batch.splits.items()
        ]
        return f"{text} (made of {listed(parts)})"
    version = ledger.version(origin, ranges[0][0])
    return text if version is None else f"{text} (made when {version} records had reached it)"


def ledger_cause_text(ledger: EffectLedger, cause: RecordCause) -> str:
    """``record 3 of numbers/0``: what caused an output."""
    origin, number = ledger.origins[cause[0]], cause[1]
    return records_text(ledger, origin, [(number, number + 1)])


def ranges_text(ranges: Sequence[Range]) -> str:
    """``0-3, 7``; single numbers with one step between them as ``0, 3, …, 99``."""
    if len(ranges) > _SHOWN:
        step = ranges[1][0] - ranges[0][0]
        if all(end == first + 1 and first == ranges[0][0] + at * step for at, (first, end) in enumerate(ranges)):
            return f"{ranges[0][0]}, {ranges[1][0]}, …, {ranges[-1][0]}"
    shown = ", ".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges[:_SHOWN])
    left = len(ranges) - _SHOWN
    if left <= 0:
        return shown
    return f"{shown} and {left} further {'range' if left == 1 else 'ranges'} up to {ranges[-1][1] - 1}"


def origin_name(ledger: EffectLedger, origin: Origin) -> str:
    """``numbers/split`` of a source, ``window[key 'a', 5000]`` of state."""
    name = ledger.names.get(origin.uid, origin.uid)
    if origin.is_source:
        return f"{name}/{origin.split}"
    of = f"key {origin.key!r}" if origin.split is None else origin.split
    return f"{name}[{of}]" if origin.namespace is None else f"{name}[{of}, {origin.namespace!r}]"


def place_name(ledger: EffectLedger, place: Place) -> str:
    """``count[key 'a']``, ``the state of buffer``, ``the output of sink``."""
    name = ledger.names.get(place.uid, place.uid)
    if place.kind == KEY:
        return f"{name}[key {place.key!r}]"
    return f"the output of {name}" if place.kind == OUTPUT else f"the state of {name}"


def times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def restart_text(ledger: EffectLedger, restart: Restart) -> str:
    """``attempt 2 began at +17ms from checkpoint 3, after count[0] was killed at +7ms``."""
    start = f"attempt {restart.attempt}"
    if restart.incarnation > 1:
        start += f" of incarnation {restart.incarnation}"
    source = checkpoint_text(restart.checkpoint_id)
    return f"{start} began at {since_start(ledger, restart.time_ns)} from {source}, after {restart.cause}"


def checkpoint_text(checkpoint_id: int | None) -> str:
    """The checkpoint that a start begins from."""
    return "nothing" if checkpoint_id is None else f"checkpoint {checkpoint_id}"


def since_start(ledger: EffectLedger, time_ns: int) -> str:
    return "+" + f"{(time_ns - ledger.started_ns) / 1_000_000:.3f}".rstrip("0").rstrip(".") + "ms"


def listed(names: Sequence[str]) -> str:
    """``a, b and 3 more``."""
    if len(names) <= _SHOWN + 1:
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"
