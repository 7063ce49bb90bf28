"""The data of a page from a recording: plain values in, plain values out.

``actions`` are the rows of the space-time diagram, one for each thing that an actor does; a *step* is one event of the
kernel and has some of them. Every number of a row, lane, cell or channel is an index into the list of that name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from engine.explore.story import CHANCE, MANAGER, PROCESS, USER, OutputChanged, RecordsRead, Saying, sayings
from engine.observe.trace_events import (
    AttemptStarted,
    ChannelBlocked,
    ChannelResumed,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointCut,
    RecordsCaptured,
    RunStarted,
    SnapshotTaken,
    TaskState,
)
from engine.runtime.kernel import START_NS
from engine.view.readings import READER, Reading
from engine.view.recorder import Recorder
from engine.view.series import series_of
from engine.view.shown import clean

PAGE_FORMAT, PAGE_VERSION = "weir-page", 1

NORMAL, ORPHAN, IN_FLIGHT, LOST = 0, 1, 2, 3
"""The fate of an element: nothing special; sent after the cut of its sender and taken before that of its receiver; the
other way round; never taken."""

MOST_ROWS_SEEN = 400
"""Of one output: further rows of readers are counted, and not shown."""


@dataclass(slots=True)
class _Element:
    """``row``, ``entry``: where it was sent; ``taken``: where it was taken, row and entry."""

    row: int
    entry: int
    sender: int
    receiver: int
    label: str
    is_barrier: bool
    attempt: tuple[int, int]
    taken: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Cut:
    """``at``: by lane, the row and the entry of the snapshot."""

    checkpoint_id: int
    attempt: tuple[int, int]
    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    state: str = "pending"
    orphans: dict[int, int] = field(default_factory=dict)
    """By channel, as the oracle has judged it."""
    crossed: dict[int, int] = field(default_factory=dict)
    """By channel: records of the orphans that are drawn. The only number for a checkpoint that the job manager has
    written, and not lived to complete: it may be restored, and is not judged."""
    in_transit: int = 0
    restored: int | None = None
    """The row at which the job was restored from it first."""


def run_data(recorder: Recorder, facts: Mapping[str, Any]) -> dict[str, Any]:
    """One run of a page. ``facts`` are added as they are: job, mode, command, tables, verdict."""
    return _Run(recorder).data() | dict(facts)


class _Run:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._witness = recorder.witness
        plans = self._witness.plans
        assert plans, "a process has started"
        # Another process may come back with another parallelism: the lanes are those of all.
        names = {(one.vertex, one.subtask): one.name for plan in plans.values() for one in plan.subtasks}
        self._plan = max(plans.values(), key=lambda plan: len(plan.subtasks))
        self._lanes = [name for _, name in sorted(names.items())]
        self._vertex_of = [vertex for (vertex, _), _ in sorted(names.items())]
        self._number = {name: number for number, name in enumerate(self._lanes)}
        self._actions: list[list[Any]] = []
        self._row_of_entry: dict[int, int] = {}
        self._elements: dict[Any, _Element] = {}
        self._cuts: dict[tuple[tuple[int, int], int], _Cut] = {}
        self._spans: list[list[int]] = []
        self._blocked: dict[tuple[tuple[int, int], int], int] = {}
        self._cells: dict[Reading, int] = {}
        self._reads: dict[str, list[int]] = {}
        self._captured: dict[tuple[tuple[int, int], int, int], int] = {}

    def data(self) -> dict[str, Any]:
        for entry_number, entry, saying in sayings(self._witness):
            self._act(entry_number, entry, saying)
        self._walk()
        steps, arrows = self._steps(), self._arrows()
        return {
            "lanes": self._lanes,
            "vertexOf": self._vertex_of,
            "vertices": [
                {"name": vertex.name, "parallelism": vertex.parallelism, "source": vertex.is_source}
                for vertex in self._plan.vertices
            ],
            "channels": self._channels(),
            "actions": self._actions,
            "steps": steps,
            "cells": [[cell.kind, clean(cell.owner), cell.name] for cell in self._cells],
            "arrows": arrows,
            "cuts": [self._cut(one) for one in self._cuts.values()],
            "spans": self._spans,
            "reads": self._reads,
            "series": series_of(self._witness.entries),
            "before": [[self._cell(cell), text] for cell, text in self._recorder.before.items()],
            "leftOut": [self._recorder.left_out, self._recorder.after],
        }

    # -- rows ----------------------------------------------------------------------------------------------------

    def _act(self, number: int, entry: Any, saying: Saying) -> None:
        row = len(self._actions)
        lane = self._number.get(saying.actor, -1)
        who = lane if lane >= 0 else {MANAGER: -1, PROCESS: -2, CHANCE: -3, USER: -4}.get(saying.actor, -1)
        text = clean(f"{saying.verb} {saying.what}".strip())
        self._actions.append([entry.time_ns - START_NS, who, saying.kind, text, int(saying.dies)])
        self._row_of_entry.setdefault(number, row)
        if saying.sent is not None:
            sent = saying.sent
            receiver = self._number.get(saying.what, -1)
            attempt = sent.element[0], sent.element[1]
            self._elements[sent.element] = _Element(
                row, number, lane, receiver, clean(sent.label), sent.is_barrier, attempt
            )
        if saying.taken is not None and saying.taken.element in self._elements:
            self._elements[saying.taken.element].taken.append((row, number))
        if isinstance(entry, RecordsRead):
            for one in entry.numbers[:200]:
                self._reads.setdefault(f"{entry.uid}/{entry.split}/{one}", []).append(row)

    def _walk(self) -> None:
        """What needs no words: cuts, blocked channels, captured records."""
        attempt, row = (1, 1), 0
        incarnation = 1
        for number, entry in enumerate(self._witness.entries):
            row = self._row_of_entry.get(number, row)
            match entry:
                case RunStarted():
                    incarnation = entry.incarnation
                case AttemptStarted():
                    self._end_spans(row)
                    attempt = incarnation, entry.attempt
                    self._note_restore(entry.restored_checkpoint, row)
                case SnapshotTaken():
                    lane = self._number.get(entry.task)
                    if lane is not None:
                        self._cut_of(attempt, entry.checkpoint_id).at[lane] = row, number
                case CheckpointCompleted():
                    self._cut_of(attempt, entry.checkpoint_id).state = "completed"
                case CheckpointAborted():
                    self._cut_of(attempt, entry.checkpoint_id).state = "aborted"
                case CheckpointCut():
                    cut = self._cut_of(attempt, entry.checkpoint_id)
                    cut.orphans = {
                        channel: received - sent for channel, sent, received in entry.differences if received > sent
                    }
                    cut.in_transit = sum(max(0, sent - received) for _, sent, received in entry.differences)
                case ChannelBlocked():
                    self._blocked[attempt, entry.channel] = row
                case ChannelResumed():
                    self._end_span(attempt, entry.channel, row)
                case RecordsCaptured():
                    key = attempt, entry.checkpoint_id, entry.channel
                    self._captured[key] = self._captured.get(key, 0) + entry.records
                case TaskState(state="failed"):
                    self._end_spans(row)
                case _:
                    pass
        self._end_spans(max(len(self._actions) - 1, 0))

    def _note_restore(self, checkpoint_id: int | None, row: int) -> None:
        for cut in self._cuts.values():
            if cut.checkpoint_id == checkpoint_id and cut.restored is None:
                cut.restored = row

    def _cut_of(self, attempt: tuple[int, int], checkpoint_id: int) -> _Cut:
        key = attempt, checkpoint_id
        if key not in self._cuts:
            self._cuts[key] = _Cut(checkpoint_id, attempt)
        return self._cuts[key]

    def _end_span(self, attempt: tuple[int, int], channel: int, row: int) -> None:
        begun = self._blocked.pop((attempt, channel), None)
        if begun is not None and row > begun:
            self._spans.append([channel, begun, row])

    def _end_spans(self, row: int) -> None:
        for attempt, channel in list(self._blocked):
            self._end_span(attempt, channel, row)

    # -- steps ---------------------------------------------------------------------------------------------------

    def _steps(self) -> list[dict[str, Any]]:
        """A step ends where the recorder has looked. ``r``: its rows, from and to; ``c``: changed cells."""
        seen = _Seen(self)
        entries, first_row = self._witness.entries, 0
        steps: list[dict[str, Any]] = []
        # Entries that are always kept stand first, and are not counted as kept ones.
        looked = 0
        rows = self._row_of_entry
        order = sorted(rows)
        ends = [rows[number] for number in order]
        position = 0
        for sample in self._recorder.samples:
            end = min(sample.at - self._recorder.left_out, len(entries))
            changes = [[self._cell(cell), before, after] for cell, before, after in sample.changes]
            changes += [one for entry in entries[looked:end] for one in seen.changes(entry)]
            while position < len(order) and order[position] < end:
                position += 1
            last_row = ends[position] if position < len(order) else len(self._actions)
            looked = max(looked, end)
            if last_row == first_row and not changes:
                continue
            steps.append({"r": [first_row, last_row], "c": changes, "x": sample.crash})
            first_row = last_row
        if first_row < len(self._actions):
            steps.append({"r": [first_row, len(self._actions)], "c": [], "x": None})
        return steps

    def _cell(self, cell: Reading) -> int:
        return self._cells.setdefault(cell, len(self._cells))

    def row_seen(self, output: str, row: str) -> int:
        return self._cell(Reading(READER, clean(output), clean(row, 200)))

    # -- pictures ------------------------------------------------------------------------------------------------

    def _channels(self) -> list[list[Any]]:
        names = {(one.vertex, one.subtask): one.name for one in self._plan.subtasks}
        return [
            [
                self._number[names[one.sender_vertex, one.sender_subtask]],
                self._number[names[one.receiver_vertex, one.receiver_subtask]],
            ]
            for one in self._plan.channels
        ]

    def _arrows(self) -> list[list[Any]]:
        """``[row sent, row taken or -1, lane, lane, label, is barrier, fate, checkpoint or 0]``."""
        cuts: dict[tuple[int, int], list[_Cut]] = {}
        for cut in self._cuts.values():
            if cut.at and cut.state != "aborted":
                cuts.setdefault(cut.attempt, []).append(cut)
        along = {attempt: _CutsAlong(some) for attempt, some in cuts.items()}
        arrows: list[list[Any]] = []
        for element, one in self._elements.items():
            for row, entry in one.taken or [(-1, -1)]:
                near = along[one.attempt].near(one.entry, entry) if one.attempt in along else ()
                fate, checkpoint = self._fate(one, entry, near)
                if fate == ORPHAN:
                    crossed = self._cuts[one.attempt, checkpoint].crossed
                    crossed[element[2]] = crossed.get(element[2], 0) + len(self._witness.values.get(element, (None,)))
                arrows.append(
                    [one.row, row, one.sender, one.receiver, one.label, int(one.is_barrier), fate, checkpoint]
                )
        return arrows

    @staticmethod
    def _fate(one: _Element, taken: int, cuts: Sequence[_Cut]) -> tuple[int, int]:
        if not one.is_barrier:
            for cut in cuts:
                sent_cut, taken_cut = cut.at.get(one.sender), cut.at.get(one.receiver)
                if sent_cut is None or taken_cut is None:
                    continue
                if one.entry > sent_cut[1] and 0 <= taken < taken_cut[1]:
                    return ORPHAN, cut.checkpoint_id
                if one.entry < sent_cut[1] and (taken < 0 or taken > taken_cut[1]):
                    return IN_FLIGHT, cut.checkpoint_id
        return (NORMAL, 0) if taken >= 0 else (LOST, 0)

    def _cut(self, cut: _Cut) -> dict[str, Any]:
        orphans = cut.orphans or cut.crossed
        captured = sum(
            count for (attempt, number, _), count in self._captured.items()
            if (attempt, number) == (cut.attempt, cut.checkpoint_id)
        )  # fmt: skip
        return {
            "id": cut.checkpoint_id,
            "attempt": cut.attempt[1],
            "state": "written" if cut.state == "pending" and cut.restored is not None else cut.state,
            "at": [[lane, row] for lane, (row, _) in sorted(cut.at.items())],
            "orphans": sum(orphans.values()),
            "byChannel": list(orphans.items()),
            "restored": cut.restored,
            "inTransit": cut.in_transit,
            "captured": captured,
        }


class _CutsAlong:
    """The cuts of one attempt, so that those that an element may cross are found without a look at all."""

    def __init__(self, cuts: Sequence[_Cut]) -> None:
        self._cuts = cuts
        reach = [[entry for _, entry in cut.at.values()] for cut in cuts]
        self._last_so_far = list(accumulate((max(entries) for entries in reach), max))
        self._first_from_here = list(accumulate((min(entries) for entries in reversed(reach)), min))[::-1]

    def near(self, sent: int, taken: int) -> Sequence[_Cut]:
        """Those that do not end before the entry ``sent`` nor begin after ``taken``, if that is one; in order."""
        first = bisect_left(self._last_so_far, sent)
        end = len(self._cuts) if taken < 0 else bisect_right(self._first_from_here, taken)
        return self._cuts[first:end]


class _Seen:
    """What readers see, as cells: how often each row, and the number of rows beyond those shown."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._rows: dict[tuple[str, str], int] = {}
        self._shown: dict[str, int] = {}

    def changes(self, entry: object) -> list[list[Any]]:
        if not isinstance(entry, OutputChanged):
            return []
        changed: list[list[Any]] = []
        for sign, rows_by_output in ((1, entry.added), (-1, entry.gone)):
            for output, rows in rows_by_output.items():
                for row in rows:
                    changed += self._change(output, row, sign)
        return changed

    def _change(self, output: str, row: str, sign: int) -> list[list[Any]]:
        key = output, row
        if key not in self._rows and self._shown.get(output, 0) >= MOST_ROWS_SEEN:
            key = output, "further rows"
        before = self._rows.get(key, 0)
        if key not in self._rows:
            self._shown[output] = self._shown.get(output, 0) + 1
        self._rows[key] = before + sign
        return [[self._run.row_seen(*key), _times(before), _times(before + sign)]]


def _times(count: int) -> str | None:
    return None if count <= 0 else "1" if count == 1 else f"{count} times"
