"""Compaction as pure functions, driven by a simulator without files: nothing is lost, and uploads have their shape."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.lsm import LsmOptions
from state_backends.lsm.compaction import CompactionTask, edit_for, pick, whole
from state_backends.lsm.version import FileMeta, Version, VersionEdit
from tests.state_backends.lsm.support import meta, tiny

ENTRY_BYTES = 10


def apply(before: Version, task: CompactionTask, outputs: Sequence[FileMeta]) -> Version:
    """The version after a task was carried out."""
    return before.applied(edit_for(before, task, outputs))


class Simulator:
    """A store without bytes: of each file it knows which keys it holds, and when each was written."""

    def __init__(self, options: LsmOptions) -> None:
        self.options = options
        self.version = Version.empty(options.max_levels)
        self.entries: dict[str, dict[int, int | None]] = {}
        self.files = 0
        self.written_bytes = 0

    def _file(self, entries: dict[int, int | None]) -> FileMeta:
        self.files += 1
        tombstones = sum(value is None for value in entries.values())
        size = ENTRY_BYTES * len(entries)
        one = meta(self.files, min(entries), max(entries), size, entries=len(entries), tombstones=tombstones)
        self.entries[one.name] = entries
        self.written_bytes += size
        return one

    def flush(self, entries: dict[int, int | None]) -> None:
        if entries:
            self.version = self.version.applied(VersionEdit(added=((0, self._file(entries)),)))

    def merge(self, task: CompactionTask) -> list[FileMeta]:
        if task.is_move:
            return list(task.inputs)
        merged: dict[int, int | None] = {}
        for run in reversed(task.runs):
            for file in run:
                merged.update(self.entries[file.name])
        kept = [one for one in sorted(merged) if not (task.is_bottom and merged[one] is None)]
        per_file = max(1, self.options.file_bytes // ENTRY_BYTES) if task.output_level else len(kept) or 1
        pieces = [kept[start : start + per_file] for start in range(0, len(kept), per_file)]
        return [self._file({one: merged[one] for one in piece}) for piece in pieces]

    def compact(self, limit: int = 1000) -> int:
        """Do all compactions that are due, and return their number."""
        for done in range(limit):
            task = pick(self.version, self.options)
            if task is None:
                return done
            self.version = apply(self.version, task, self.merge(task))
            self.version.validate()
        pytest.fail("there is no end to it")

    def content(self) -> dict[int, int | None]:
        """The entries that a reader finds, tombstones included."""
        found: dict[int, int | None] = {}
        for files in self.version.levels:
            level: dict[int, int | None] = {}
            for file in files:
                level = {**self.entries[file.name], **level}
            found = {**level, **found}
        return found

    def sizes(self) -> dict[str, int]:
        return {file.name: file.size_bytes for file in self.version.files()}


writes = st.lists(
    st.dictionaries(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=12), max_size=25
)
policies = st.sampled_from([
    tiny(level1_bytes=150, target_file_bytes=50),
    tiny(level1_bytes=80, target_file_bytes=200, level0_trigger=1),
    tiny(level1_bytes=150, max_levels=3, target_file_bytes=30),
    tiny(compaction="universal", target_file_bytes=50),
    tiny(compaction="universal", level0_trigger=2, max_levels=2, target_file_bytes=50),
    tiny(compaction="universal", size_ratio_percent=80, max_size_amplification_percent=10_000),
    tiny(compaction="none"),
])  # fmt: skip


@settings(max_examples=150)
@given(writes, policies)
def test_nothing_is_lost_and_the_newest_wins(batches: list[dict[int, int | None]], options: LsmOptions) -> None:
    """After every flush and every task, each key has its newest value, and all levels are in order."""
    simulator = Simulator(options)
    model: dict[int, int | None] = {}
    for batch in batches:
        simulator.flush(batch)
        model.update(batch)
        simulator.compact()
        live = {one: value for one, value in simulator.content().items() if value is not None}
        assert live == {one: value for one, value in model.items() if value is not None}
    if (task := whole(simulator.version, options)) is not None:
        simulator.version = apply(simulator.version, task, simulator.merge(task))

    assert simulator.content() == {one: value for one, value in model.items() if value is not None}


@settings(max_examples=100)
@given(writes, policies, st.data())
def test_files_that_arrive_meanwhile_stay_in_front(
    batches: list[dict[int, int | None]], options: LsmOptions, data: st.DataObject
) -> None:
    """A task picked earlier fits a version with newer files of level 0, and they still win."""
    simulator = Simulator(options)
    model: dict[int, int | None] = {}
    pending: CompactionTask | None = None
    for batch in batches:
        simulator.flush(batch)
        model.update(batch)
        if pending is not None and data.draw(st.booleans()):
            simulator.version = apply(simulator.version, pending, simulator.merge(pending))
            simulator.version.validate()
            pending = None
        pending = pending or pick(simulator.version, options)
        live = {one: value for one, value in simulator.content().items() if value is not None}
        assert live == {one: value for one, value in model.items() if value is not None}


@given(writes, policies)
def test_edits_lead_to_the_same_version_after_writing_and_reading(
    batches: list[dict[int, int | None]], options: LsmOptions
) -> None:
    """A reader of the manifest, which sees edits only, arrives at the same order of all files."""
    simulator = Simulator(options)
    replayed = Version.empty(1)
    for batch in batches:
        before = set(simulator.sizes())
        simulator.flush(batch)
        (new,) = [file for file in simulator.version.files() if file.name not in before]
        replayed = replayed.applied(VersionEdit.from_state(VersionEdit(added=((0, new),)).to_state()))
        if (task := pick(simulator.version, options)) is not None:
            edit = edit_for(simulator.version, task, simulator.merge(task))
            simulator.version = simulator.version.applied(edit)
            replayed = replayed.applied(VersionEdit.from_state(edit.to_state()))

    assert replayed.with_depth(options.max_levels) == simulator.version
    assert Version.empty(options.max_levels).applied(simulator.version.as_edit()) == simulator.version


# --- levelled, rule by rule ---


def version(*levels: Iterable[FileMeta]) -> Version:
    """A version with these files, and room below."""
    padded = [tuple(files) for files in levels] + [()] * (5 - len(levels))
    return Version(tuple(padded), (b"",) * 5)


ROOMY = tiny(level1_bytes=250, level_multiplier=10)


def test_level_0_waits_for_its_trigger() -> None:
    """Fewer files than the trigger are left alone; at it all go, with what they overlap in level 1."""
    files = [meta(number, 0, 50) for number in (3, 2, 1)]
    below = [meta(4, 10, 20), meta(5, 60, 70)]
    assert pick(version(files[:2], below), ROOMY) is None
    task = pick(version(files, below), ROOMY)

    assert task == CompactionTask(((files[0],), (files[1],), (files[2],), (below[0],)), 1, is_bottom=True)


def test_a_level_over_its_size_gives_one_file_after_the_other() -> None:
    """The cursor goes round: each file gets its turn before the first one comes again."""
    files = [meta(number, 10 * number, 10 * number + 5) for number in range(1, 6)]
    below = [meta(9, 0, 100)]
    now = version([], files, below)
    order = []
    for _ in range(7):
        task = pick(now, ROOMY)
        assert task is not None
        assert task.output_level == 2
        assert task.cursor is not None
        order.append(task.inputs[0].number)
        now = Version(now.levels, tuple(task.cursor[1] if level == 1 else b"" for level in range(5)))

    assert order == [1, 2, 3, 4, 5, 1, 2]


def test_a_level_at_its_size_is_not_over_it() -> None:
    """Bytes up to the bound are allowed."""
    assert pick(version([], [meta(1, 0, 1, 250)]), ROOMY) is None
    assert pick(version([], [meta(1, 0, 1, 251)]), ROOMY) is not None


def test_the_fullest_level_is_relieved_first() -> None:
    """Levels compete by how far they are beyond their bounds."""
    level0 = [meta(number, 0, 50) for number in (3, 2, 1)]
    small, large = meta(4, 0, 9, 240), meta(5, 0, 9, 900)
    first = pick(version(level0, [small]), ROOMY)
    second = pick(version(level0, [large]), ROOMY)
    assert first is not None
    assert second is not None

    assert first.output_level == 1
    assert second.output_level == 2


def test_files_without_overlap_move_and_keep_their_names() -> None:
    """The files are not rewritten, so they need not be uploaded again."""
    files = [meta(number, 10 * number, 10 * number + 9) for number in (3, 1, 2)]
    task = pick(version(files, [meta(9, 50, 60)]), ROOMY)
    assert task is not None
    assert task.is_move
    after = apply(version(files, [meta(9, 50, 60)]), task, task.inputs)

    assert [file.number for file in after.levels[1]] == [1, 2, 3, 9]
    assert after.levels[0] == ()


@pytest.mark.parametrize(
    ("files", "below"),
    [
        ([meta(1, 0, 10), meta(2, 10, 20), meta(3, 30, 40)], []),
        ([meta(1, 0, 10), meta(2, 12, 20), meta(3, 30, 40)], [meta(9, 20, 25)]),
        ([meta(1, 0, 10, tombstones=1), meta(2, 12, 20), meta(3, 30, 40)], []),
        ([meta(1, 0, 10, range_tombstones=1), meta(2, 12, 20), meta(3, 30, 40)], []),
    ],
    ids=["overlap each other", "overlap the level below", "tombstones at the bottom", "ranges at the bottom"],
)
def test_other_files_are_rewritten(files: list[FileMeta], below: list[FileMeta]) -> None:
    """A move would put keys side by side that must be merged, or keep tombstones that hide nothing."""
    task = pick(version(files, below), ROOMY)
    assert task is not None

    assert not task.is_move


def test_tombstones_move_while_something_lies_below() -> None:
    """Above other files that say something about their keys they are still needed."""
    files = [meta(1, 0, 10, tombstones=1), meta(2, 12, 20), meta(3, 30, 40)]
    task = pick(version(files, [], [meta(9, 5, 6)]), ROOMY)
    assert task is not None

    assert task.is_move
    assert not task.is_bottom


# --- universal, rule by rule ---


def universal(**changes: int) -> LsmOptions:
    return tiny(compaction="universal", level0_trigger=4, **changes)


def runs_of(*sizes: int) -> Version:
    """Runs in level 0, the newest first."""
    return version([meta(len(sizes) - index, 0, 50, size) for index, size in enumerate(sizes)])


@pytest.mark.parametrize(
    ("sizes", "merged", "level"),
    [
        ([10, 10, 10], None, None),
        ([10, 10, 10, 10], [4, 3, 2, 1], 4),
        ([10, 10, 10, 1000], [4, 3, 2], 0),
        ([10, 11, 100, 1000], [4, 3], 0),
        ([10, 50, 52, 1000], [3, 2], 0),
        ([10, 50, 200, 1000], [4, 3], 0),
        ([10, 50, 200, 700, 5000], [5, 4], 0),
        ([10, 50, 200, 700, 3000, 9000], [6, 5, 4], 0),
    ],
    ids=["too few", "too much space", "like size", "rounded up", "like size further back", "fewer runs",
         "just enough fewer", "more to lose"],
)  # fmt: skip
def test_universal_rules(sizes: list[int], merged: list[int] | None, level: int | None) -> None:
    """Space first, then like sizes, then the number of runs."""
    task = pick(runs_of(*sizes), universal(size_ratio_percent=10))
    if merged is None:
        assert task is None
        return
    assert task is not None

    assert [file.number for file in task.inputs] == merged
    assert task.output_level == level
    assert task.is_bottom == (level == 4)


def test_a_universal_result_stands_where_its_files_stood() -> None:
    """A result within level 0 keeps newer runs in front of it and older ones behind it."""
    before = runs_of(10, 50, 52, 1000)
    task = pick(before, universal(size_ratio_percent=10))
    assert task is not None
    after = apply(before, task, [meta(9, 0, 50, 102)])

    assert [file.number for file in after.levels[0]] == [4, 9, 1]


def test_a_universal_result_goes_right_above_the_next_older_run() -> None:
    """Deep enough, not deeper."""
    files = [meta(number, 0, 50, 10) for number in (4, 3, 2)]
    task = pick(version(files, [], [], [meta(1, 0, 50, 1000)]), universal())
    assert task is not None

    assert (task.output_level, task.is_bottom) == (2, False)


# --- edits that make no sense ---


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (VersionEdit(removed=("nobody.sst",)), "removes nobody.sst, which is not there"),
        (VersionEdit(added=((1, meta(7, 0, 15)),)), "000007-x.sst and 000001-x.sst of level 1 overlap"),
        (VersionEdit(added=((2, meta(1, 0, 5)),)), "a file is listed twice"),
        (VersionEdit(added=((2, meta(7, 5, 4)),)), "000007-x.sst ends before it begins"),
        (VersionEdit(added=((2, replace(meta(7, 4, 5), name="../7-x.sst")),)), "'../7-x.sst' is no name of a file"),
        (VersionEdit(level0=("other",)), "orders other files in level 0 than there are"),
    ],
)
def test_edits_that_do_not_fit_are_refused(edit: VersionEdit, problem: str) -> None:
    """A damaged manifest does not make a version in which reads would go wrong."""
    with pytest.raises(ValueError, match=problem):
        version([], [meta(1, 10, 20)]).applied(edit)


# --- the shape of uploads ---


def uploads(updated: float, compaction: str = "levelled") -> tuple[list[int], list[int]]:
    """Load, checkpoint, then eleven times change some keys, drawn evenly, and checkpoint: new bytes and all bytes.

    The scale is 29 memtables of 345 entries, as a million entries of 116 bytes are to 4 MiB.
    """
    memtable, count = 345, 10_000
    source = random.Random(3)
    options = LsmOptions(memtable_bytes=memtable * ENTRY_BYTES, compaction=compaction)
    simulator = Simulator(options)
    keys = source.sample(range(count), count)
    for start in range(0, count, memtable):
        simulator.flush(dict.fromkeys(keys[start : start + memtable], 0))
        simulator.compact()
    known: dict[str, int] = {}
    new, full = [], []
    for turn in range(12):
        changed = source.sample(range(count), round(count * updated)) if turn else []
        for start in range(0, len(changed), memtable):
            simulator.flush(dict.fromkeys(changed[start : start + memtable], turn))
            if start + memtable < len(changed):
                simulator.compact()
        sizes = simulator.sizes()
        new.append(sum(size for name, size in sizes.items() if name not in known))
        full.append(sum(sizes.values()))
        known = sizes
        # As the store does: files are merged after a checkpoint, not for it.
        simulator.compact()
    return new, full


def test_uploads_have_a_floor_and_spikes_every_fourth_time() -> None:
    """Most checkpoints upload what was changed; each fourth one what was merged, which is many times as much."""
    new, _ = uploads(0.01)
    floor = 100 * ENTRY_BYTES
    spikes = [turn for turn in range(1, 12) if new[turn] > 1.5 * floor]

    assert new[0] == 10_000 * ENTRY_BYTES
    assert median(new[1:]) == floor
    assert all(later - earlier == 4 for earlier, later in pairwise(spikes)), new
    assert len(spikes) in (2, 3)
    assert min(new[turn] for turn in spikes) > 10 * floor
    assert max(new[1:]) < new[0]


def test_uploads_gain_less_the_more_is_changed() -> None:
    """Incremental beside full: a few hundredths at 0.1 %, a tenth at 1 %, less than half at 10 % (as RocksDB's)."""
    ratios = []
    for updated in (0.001, 0.01, 0.1):
        new, full = uploads(updated)
        ratios.append(sum(new[1:]) / sum(full[1:]))

    assert 0.005 < ratios[0] < 0.12
    assert ratios[0] < ratios[1] < 0.25
    assert 0.25 < ratios[2] < 0.65


def test_universal_uploads_less_and_takes_more_space() -> None:
    """The universal policy is made for this."""
    levelled, universally = uploads(0.1), uploads(0.1, "universal")

    assert sum(universally[0][1:]) < 0.8 * sum(levelled[0][1:])
    assert max(universally[1]) > max(levelled[1])


def test_without_compaction_uploads_are_what_was_changed() -> None:
    """No byte is uploaded twice, and no space is ever given back."""
    new, full = uploads(0.01, "none")

    assert new[1:] == [100 * ENTRY_BYTES] * 11
    assert full[-1] == sum(new)


def test_everything_goes_where_it_fits() -> None:
    """Merging all files ends in one run, at the level whose size allows it and never above another run's."""
    files = [meta(2, 0, 50, 100), meta(1, 0, 50, 100)]
    deep = version(files, [], [], [meta(3, 0, 9)])
    for given_version, level in ((version(files), 1), (version([*files, meta(4, 0, 1, 400)]), 2), (deep, 3)):
        task = whole(given_version, ROOMY)
        assert task is not None
        assert task.output_level == level
        assert task.is_bottom
    assert whole(version(), ROOMY) is None
    task = whole(version(files), universal())
    assert task is not None
    assert task.output_level == 4
