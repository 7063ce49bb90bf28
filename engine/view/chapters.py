"""The steps that tell why a run came out as it did, for a reader who sees it for the first time.

They are about the checkpoint that the job was restored from first: its trigger, its orphans or its blocked channels,
and its last snapshot; then the crash, the restore, and the first record that is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.view.page_data import ORPHAN

Chapter = tuple[str, int]
"""A sentence, and the row of the diagram that shows it."""


def chapters_of(data: Mapping[str, Any]) -> list[Chapter]:
    """In order; none when the run was not restored from a checkpoint that the page shows."""
    cut = next((one for one in data["cuts"] if one["restored"] is not None and one["at"]), None)
    return [] if cut is None else list(_chapters(data, cut))


def _chapters(data: Mapping[str, Any], cut: Mapping[str, Any]) -> Iterator[Chapter]:
    actions, number, restored = data["actions"], cut["id"], cut["restored"]
    last = max(row for _, row in cut["at"])
    trigger = _row(data, 0, lambda row: row[2] == "trigger" and row[3].split()[2] == str(number))
    if trigger is not None:
        yield f"▷ checkpoint {number} is triggered: each source takes its snapshot and sends a barrier", trigger
    yield from _crossing(data, cut)
    yield f"◆ {data['lanes'][_lane_at(cut, last)]} takes the last snapshot: now the cut is complete", last
    crash = _row(data, last, lambda row: row[4], until=restored)
    fault = _row(data, last, lambda row: row[2] == "fault", until=restored)
    if crash is not None:
        yield f"✕ {data['lanes'][actions[crash][1]] if actions[crash][1] >= 0 else 'the process'} dies", crash
    elif fault is not None:
        yield f"⚡ {actions[fault][3]}", fault
    yield f"↻ {actions[restored][3]}: state and source positions go back to the cut", restored
    senders = {data["channels"][channel][0] for channel, _ in cut["byChannel"]}
    again = _row(data, restored, lambda row: "(again)" in row[3] and (not senders or row[1] in senders))
    if again is not None:
        fate = "; the orphans among them are already in the state, so they count twice" if cut["orphans"] else ""
        yield f"{data['lanes'][actions[again][1]]} reads records again{fate}", again


def _crossing(data: Mapping[str, Any], cut: Mapping[str, Any]) -> Iterator[Chapter]:
    """Orphans of the checkpoint; without one, a channel that is blocked for it."""
    number, lanes = cut["id"], data["lanes"]
    orphans = [one for one in data["arrows"] if one[6] == ORPHAN and one[7] == number]
    if orphans:
        first = min(orphans, key=lambda one: one[1])
        sums: dict[str, int] = {}
        for channel, records in cut["byChannel"]:
            vertex = data["vertices"][data["vertexOf"][data["channels"][channel][1]]]["name"]
            sums[vertex] = sums.get(vertex, 0) + records
        counts = ", ".join(f"{records:,} at {vertex}" for vertex, records in sums.items())
        yield (
            f"◎ {lanes[first[3]]} takes what {lanes[first[2]]} had sent after its own snapshot: an orphan, the first of"
            f" checkpoint {number} (in all: {counts})",
            first[1],
        )
        return
    rows = [row for _, row in cut["at"]]
    blocked = [span for span in data["spans"] if span[1] <= max(rows) and span[2] >= min(rows)]
    if blocked:
        channel, row, _ = blocked[0]
        sender, receiver = data["channels"][channel]
        yield (
            f"▨ {lanes[receiver]} blocks the channel from {lanes[sender]} until all barriers have come: no record"
            " overtakes a barrier",
            row,
        )


def _lane_at(cut: Mapping[str, Any], row: int) -> int:
    return next(int(lane) for lane, at in cut["at"] if at == row)


def _row(data: Mapping[str, Any], first: int, is_meant: Any, until: int | None = None) -> int | None:
    rows = range(first, len(data["actions"]) if until is None else until)
    return next((row for row in rows if is_meant(data["actions"][row])), None)
