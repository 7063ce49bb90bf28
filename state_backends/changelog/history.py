"""Which snapshot refers to which part of the log and to which materialisation: a pure machine, numbers in and out.

The log is cut into *segments*, known by the sequence number of their first change. A *materialisation* is a snapshot
of the backend below, with its own number; it holds every change up to the end that the log had when it began. A
checkpoint refers to one materialisation and to the segments after it.

Rules (ChangelogKeyedStateBackend, ChangelogTruncateHelper):

* C1 A checkpoint refers to the newest materialisation that was finished when its synchronous part ran, and to the
  segments after it. Later checkpoints need the same files until a newer materialisation replaces this one. Once a
  checkpoint has completed without a file, no later checkpoint needs that file. So the owner of shared files cannot
  have deleted a file that a checkpoint refers to.
* C2 Materialisation 0 is the empty state of a fresh backend. After a restore it is the restored one, if checkpoints may
  refer to its files; otherwise the first checkpoint materialises *inline*, as part of itself. So does every full
  checkpoint, and every checkpoint begun while an inline materialisation is unfinished (C1 would break).
* C3 A file is *handed* once a finished snapshot refers to it: from then on this backend must not delete it. It is
  *confirmed* once a checkpoint that refers to it completes. Until then every snapshot reports it as new.
* C4 Files handed only to aborted checkpoints may be deleted by now. Such segments are uploaded again, as other files.
  Such a materialisation is given up; checkpoints then refer to the newest confirmed one and the log after it.
* C5 The log is truncated up to min(subsumed, materialised and confirmed). A segment is forgotten when the present
  materialisation, the newest confirmed one, and all known snapshots do not need it. Forgotten files that were never
  handed are deleted, because only this history knows them.
* C6 A snapshot that fails takes back the segments that it has uploaded itself, unless they were handed meanwhile.
* C7 The backend below is notified that a materialisation is complete when the first checkpoint that refers to it
  completes, but only while there is no newer one, finished or not. A newer one was not built upon it, and checkpoints
  continue from the newer one, so the files of the older one may be deleted.
* C8 A *full* materialisation uses no file of an older one. Until the backend below is notified that it is complete
  (C7), the base of a later one would be older still, and its files may be deleted. So every one until then is full too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class SnapshotState(enum.Enum):
    """The state of a snapshot from its begin until it is forgotten."""

    OPEN = "open"
    """Its asynchronous part runs."""
    HANDED = "handed"
    """Its result was handed over; it is not known yet whether it completes."""
    COMPLETE = "complete"
    """A restore may use it until it is subsumed."""


@dataclass(slots=True)
class _Segment:
    first: int
    end: int
    is_uploaded: bool = False
    uploaded_by: int | None = None
    is_handed: bool = False
    is_confirmed: bool = False


@dataclass(slots=True)
class _Materialization:
    number: int
    upto: int
    is_full: bool = False
    is_handed: bool = False
    is_confirmed: bool = False
    is_told: bool = False


class _Running(NamedTuple):
    number: int
    upto: int
    is_full: bool


@dataclass(slots=True)
class _Snapshot:
    materialization: int
    first: int
    end: int
    is_inline: bool = False
    is_full: bool = False
    state: SnapshotState = SnapshotState.OPEN
    is_aborted: bool = False


class SnapshotPlan(NamedTuple):
    """The parts of a snapshot: the number of its materialisation, whether the snapshot itself makes it, whether that
    must be full (C8), and the first sequence numbers of its segments, ascending."""

    materialization: int
    is_inline: bool
    is_full: bool
    segments: tuple[int, ...]


class Handed(NamedTuple):
    """The parts of a finished snapshot that no completed one has: whether the materialisation is one, and which
    segments are."""

    materialization_is_new: bool
    new_segments: frozenset[int]


class Cleanup(NamedTuple):
    """Instructions after an event.

    :ivar delete_segments: delete their files; keep their bytes for another upload
    :ivar retract_segments: they must be uploaded again; do not delete their files
    :ivar confirmed_segments: they will never be uploaded again
    :ivar forget_segments: forget them; their files are handed, or in ``delete_segments``
    :ivar delete_materializations: delete their uploaded files
    :ivar forget_materializations: forget them
    :ivar complete: notify the backend below that this materialisation is complete
    :ivar aborted: notify it that these materialisations will never be complete
    :ivar fell_back: whether the present materialisation was given up
    """

    delete_segments: tuple[int, ...] = ()
    retract_segments: tuple[int, ...] = ()
    confirmed_segments: tuple[int, ...] = ()
    forget_segments: tuple[int, ...] = ()
    delete_materializations: tuple[int, ...] = ()
    forget_materializations: tuple[int, ...] = ()
    complete: int | None = None
    aborted: tuple[int, ...] = ()
    fell_back: bool = False


class LogHistory:
    """The bookkeeping of one backend; see the rules at the top of the module."""

    def __init__(self) -> None:
        self._segments: dict[int, _Segment] = {}
        self._end = 0
        self._materializations: dict[int, _Materialization] = {
            0: _Materialization(0, 0, is_handed=True, is_confirmed=True, is_told=True)
        }
        self._base = 0
        self._confirmed = 0
        self._starts_empty = True
        self._last_number = 0
        self._last_told = 0
        self._running: _Running | None = None
        self._snapshots: dict[int, _Snapshot] = {}
        self._is_inline_requested = False

    @property
    def end(self) -> int:
        """The sequence number after the last segment."""
        return self._end

    @property
    def base(self) -> int:
        """The materialisation that snapshots refer to now."""
        return self._base

    @property
    def materialized_upto(self) -> int:
        """The number of the first change that is not in the present materialisation."""
        return self._materializations[self._base].upto

    @property
    def running(self) -> int | None:
        """The number of the materialisation under way in the background, if any."""
        return None if self._running is None else self._running.number

    @property
    def has_open_inline(self) -> bool:
        """Whether a snapshot that materialises is under way."""
        return any(one.is_inline and one.state is SnapshotState.OPEN for one in self._snapshots.values())

    @property
    def needs_inline(self) -> bool:
        """Whether the next checkpoint must materialise."""
        has_base = self._starts_empty or self._base > 0
        return self._is_inline_requested or not has_base or self.has_open_inline

    @property
    def needs_full(self) -> bool:
        """Whether the next materialisation must be full (C8)."""
        is_open = any(one.is_full and one.state is SnapshotState.OPEN for one in self._snapshots.values())
        return is_open or any(one.is_full and one.number > self._last_told for one in self._materializations.values())

    # --- a restore ------------------------------------------------------------------------------------------------

    def restored(self, materialization: int, segments: tuple[tuple[int, int], ...]) -> None:
        """Continue from a restored snapshot; checkpoints may refer to its files (C2). ``segments``: (first, end),
        ascending without gaps."""
        assert (self._snapshots, self._end) == ({}, 0), "restore into a history that has begun"
        start = segments[0][0] if segments else 0
        self._materializations = {materialization: _Materialization(materialization, start, False, True, True, True)}
        self._base = self._confirmed = self._last_number = self._last_told = materialization
        self._end = start
        for first, end in segments:
            self.sealed(end)
            segment = self._segments[first]
            segment.is_uploaded = segment.is_handed = segment.is_confirmed = True

    def restored_elsewhere(self, last_number: int) -> None:
        """Begin after a restore from files that checkpoints must not refer to: the next checkpoint materialises (C2),
        under a number above ``last_number``."""
        assert (self._snapshots, self._end) == ({}, 0), "restore into a history that has begun"
        self._last_number = last_number
        self._starts_empty = False

    # --- the log --------------------------------------------------------------------------------------------------

    def sealed(self, end: int) -> int:
        """The log was cut at ``end``; returns the new segment's first number."""
        assert end > self._end, f"an empty segment at {end}"
        first = self._end
        self._segments[first] = _Segment(first, end)
        self._end = end
        return first

    def is_uploaded(self, first: int) -> bool:
        """Whether a segment has a file."""
        return self._segments[first].is_uploaded

    def is_needed(self, first: int) -> bool:
        """Whether a segment has not been forgotten."""
        return first in self._segments

    def uploaded(self, first: int, by: int | None = None) -> None:
        """A segment is in a file now. ``by``: the snapshot that uploaded it, if one did."""
        segment = self._segments[first]
        assert not segment.is_uploaded, f"segment {first} was uploaded twice"
        segment.is_uploaded, segment.uploaded_by = True, by

    # --- materialisation ------------------------------------------------------------------------------------------

    def request_inline(self) -> None:
        """Make the next checkpoint materialise, because no background work can."""
        self._is_inline_requested = True

    def begin_materialization(self) -> int:
        """A materialisation of all changes before :attr:`end` begins in the background; returns its number."""
        assert self._running is None, "two materialisations at a time"
        assert not self.has_open_inline, "two materialisations at a time"
        self._last_number += 1
        self._running = _Running(self._last_number, self._end, self.needs_full)
        return self._last_number

    def materialized(self) -> Cleanup:
        """The materialisation in the background is finished: snapshots refer to it from now on."""
        assert self._running is not None
        running, self._running = self._running, None
        # It holds the changes logged before it began, and none of those logged meanwhile
        # (mutant "log cut where the materialisation ended").
        self._rebase(*running)
        return self._settle()

    def materialization_failed(self) -> Cleanup:
        """The materialisation in the background has failed and has deleted its files."""
        assert self._running is not None
        running, self._running = self._running, None
        return Cleanup(aborted=(running.number,))

    def _rebase(self, number: int, upto: int, is_full: bool) -> None:
        self._materializations[number] = _Materialization(number, upto, is_full)
        if number > self._base:
            assert upto >= self.materialized_upto
            self._base = number
            self._is_inline_requested = False

    # --- snapshots ------------------------------------------------------------------------------------------------

    def begin_snapshot(self, checkpoint_id: int, *, full: bool) -> SnapshotPlan:
        """The synchronous part of a snapshot, after the log was cut. If it must materialise inline, no background
        materialisation may run.

        :param full: whether the snapshot must not use older files
        """
        assert checkpoint_id not in self._snapshots, f"snapshot {checkpoint_id} was taken twice"
        if full or self.needs_inline:
            assert self._running is None, "materialised inline and in the background"
            full = full or self.needs_full
            self._last_number += 1
            self._snapshots[checkpoint_id] = _Snapshot(
                self._last_number, self._end, self._end, is_inline=True, is_full=full
            )
            return SnapshotPlan(self._last_number, True, full, ())
        upto = self.materialized_upto
        self._snapshots[checkpoint_id] = _Snapshot(self._base, upto, self._end)
        return SnapshotPlan(self._base, False, False, self._between(upto, self._end))

    def snapshot_finished(self, checkpoint_id: int) -> tuple[Handed, Cleanup]:
        """A snapshot hands over its result: all its files are handed (C3)."""
        snapshot = self._snapshots[checkpoint_id]
        assert snapshot.state is SnapshotState.OPEN
        if snapshot.is_inline:
            self._rebase(snapshot.materialization, snapshot.end, snapshot.is_full)
        segments = [self._segments[first] for first in self._between(snapshot.first, snapshot.end)]
        assert all(segment.is_uploaded for segment in segments)
        materialization = self._materializations[snapshot.materialization]
        handed = Handed(
            not materialization.is_confirmed,
            frozenset(segment.first for segment in segments if not segment.is_confirmed),
        )
        materialization.is_handed = True
        for segment in segments:
            segment.is_handed = True
        snapshot.state = SnapshotState.HANDED
        if snapshot.is_aborted:
            del self._snapshots[checkpoint_id]
        return handed, self._settle()

    def snapshot_failed(self, checkpoint_id: int) -> Cleanup:
        """A snapshot was cancelled or has failed (C6)."""
        snapshot = self._snapshots.pop(checkpoint_id)
        assert snapshot.state is SnapshotState.OPEN
        taken_back = []
        for segment in self._segments.values():
            if segment.uploaded_by == checkpoint_id and not segment.is_handed:
                segment.is_uploaded, segment.uploaded_by = False, None
                taken_back.append(segment.first)
        cleanup = self._settle()
        aborted = (snapshot.materialization,) if snapshot.is_inline else ()
        return cleanup._replace(
            delete_segments=(*taken_back, *cleanup.delete_segments), aborted=(*aborted, *cleanup.aborted)
        )

    # --- notifications --------------------------------------------------------------------------------------------

    def complete(self, checkpoint_id: int) -> Cleanup:
        """A checkpoint is complete. Older ones that are neither complete nor aborted will never be complete."""
        snapshot = self._snapshots.get(checkpoint_id)
        if snapshot is None or snapshot.state is not SnapshotState.HANDED:
            return Cleanup()
        snapshot.state = SnapshotState.COMPLETE
        confirmed = []
        for first in self._between(snapshot.first, snapshot.end):
            if not self._segments[first].is_confirmed:
                self._segments[first].is_confirmed = True
                confirmed.append(first)
        materialization = self._materializations[snapshot.materialization]
        materialization.is_confirmed = True
        self._confirmed = max(self._confirmed, materialization.number)
        for older, one in list(self._snapshots.items()):
            if older < checkpoint_id and one.state is SnapshotState.HANDED:
                del self._snapshots[older]
        told = None
        if not materialization.is_told and materialization.number == self._newest():
            materialization.is_told = True
            told = self._last_told = materialization.number
        return self._settle()._replace(confirmed_segments=tuple(confirmed), complete=told)

    def _newest(self) -> int:
        inline = [one.materialization for one in self._snapshots.values() if one.is_inline]
        return max(self._base, self._running.number if self._running else 0, *inline)

    def abort(self, checkpoint_id: int) -> Cleanup:
        snapshot = self._snapshots.get(checkpoint_id)
        if snapshot is None or snapshot.state is SnapshotState.COMPLETE:
            return Cleanup()
        if snapshot.state is SnapshotState.OPEN:
            snapshot.is_aborted = True
            return Cleanup()
        del self._snapshots[checkpoint_id]
        return self._settle()

    def subsumed(self, checkpoint_id: int) -> Cleanup:
        """No restore will use this checkpoint or one before it."""
        for older, one in list(self._snapshots.items()):
            if older <= checkpoint_id and one.state is not SnapshotState.OPEN:
                del self._snapshots[older]
        return self._settle()

    def dispose(self) -> Cleanup:
        """The backend ends: forget everything, and delete the files that were never handed."""
        assert self._running is None, "disposed of before its materialisation has ended"
        states = [one.state for one in self._snapshots.values()]
        assert SnapshotState.OPEN not in states, "disposed of before its snapshots have ended"
        self._snapshots.clear()
        segments, self._segments = list(self._segments.values()), {}
        return _forget(segments, list(self._materializations.values()))._replace(aborted=())

    def _settle(self) -> Cleanup:
        """Trust no file that only aborted checkpoints refer to (C4), then forget unneeded ones (C5)."""
        handed = [one for one in self._snapshots.values() if one.state is not SnapshotState.OPEN]
        retracted = []
        for segment in self._segments.values():
            is_used = any(one.first <= segment.first < one.end for one in handed)
            if segment.is_handed and not segment.is_confirmed and not is_used:
                segment.is_uploaded = segment.is_handed = False
                segment.uploaded_by = None
                retracted.append(segment.first)
        base = self._materializations[self._base]
        fell_back = base.is_handed and not base.is_confirmed and not self._is_referred_to(base.number)
        if fell_back:
            self._base = self._confirmed
        return self._collect()._replace(retract_segments=tuple(retracted), fell_back=fell_back)

    def _is_referred_to(self, number: int) -> bool:
        return any(one.materialization == number for one in self._snapshots.values())

    # --- truncation -----------------------------------------------------------------------------------------------

    def _collect(self) -> Cleanup:
        lowest = min((one.first for one in self._snapshots.values()), default=self._end)
        lowest = min(lowest, self.materialized_upto)
        if self._starts_empty or self._confirmed > 0:
            # A restore may still begin at the newest confirmed one (mutant "log truncated up to what is unconfirmed").
            lowest = min(lowest, self._materializations[self._confirmed].upto)
        segments = [segment for segment in self._segments.values() if segment.end <= lowest]
        for segment in segments:
            del self._segments[segment.first]
        used = {self._base, self._confirmed, *(one.materialization for one in self._snapshots.values())}
        materializations = [one for one in self._materializations.values() if one.number not in used]
        for one in materializations:
            del self._materializations[one.number]
        return _forget(segments, materializations)

    def _between(self, first: int, end: int) -> tuple[int, ...]:
        return tuple(one for one in self._segments if first <= one < end)

    def validate(self) -> None:
        position = next(iter(self._segments), self._end)
        for first, segment in self._segments.items():
            assert first == segment.first == position < segment.end, "the log has a gap"
            assert segment.is_uploaded or not segment.is_handed, "handed without a file"
            assert segment.is_handed or not segment.is_confirmed, "confirmed without being handed"
            position = segment.end
        assert position == self._end
        for one in self._materializations.values():
            assert one.is_handed or not one.is_confirmed, one
            assert one.number <= self._last_number, one
        assert self._materializations[self._confirmed].is_confirmed
        assert self._confirmed <= self._base <= self._last_number
        lowest = next(iter(self._segments), self._end)
        assert self.materialized_upto >= lowest, "truncated beyond the materialisation"
        for checkpoint_id, snapshot in self._snapshots.items():
            assert lowest <= snapshot.first <= snapshot.end <= self._end, checkpoint_id
            if snapshot.state is not SnapshotState.OPEN or not snapshot.is_inline:
                assert snapshot.materialization in self._materializations, checkpoint_id


def _forget(segments: list[_Segment], materializations: list[_Materialization]) -> Cleanup:
    return Cleanup(
        delete_segments=tuple(one.first for one in segments if one.is_uploaded and not one.is_handed),
        forget_segments=tuple(one.first for one in segments),
        delete_materializations=tuple(one.number for one in materializations if not one.is_handed),
        forget_materializations=tuple(one.number for one in materializations),
        aborted=tuple(one.number for one in materializations if not one.is_confirmed),
    )
