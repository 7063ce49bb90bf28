"""The store, one property at a time: those that the machine of random operations does not show by itself."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from state_backends.base import CorruptStateError, StateArgumentError, StateSchemaError
from state_backends.codec import preamble, seal
from state_backends.files import LocalFileSystem, MemoryFileSystem
from state_backends.lsm import LsmOptions, LsmStoreKind
from state_backends.lsm.compaction_work import CompactionWork
from state_backends.lsm.manifest import CURRENT_MAGIC, MANIFEST_MAGIC
from state_backends.lsm.version import VersionEdit
from tests.hash_seeds import printed
from tests.state_backends.lsm.support import content, fill, key, mixed, names, open_store, tiny
from tests.state_backends.support import DeferredExecutor

# --- options ---


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("compaction", "tiered"),
        ("compression", "zstd"),
        ("memtable_bytes", 0),
        ("max_levels", 1),
        ("level_multiplier", 1),
        ("filter_bits", 0),
        ("target_file_bytes", 0),
    ],
)
def test_senseless_options_are_refused(option: str, value: Any) -> None:
    """The error names the option and what it was."""
    with pytest.raises(StateArgumentError, match=rf"{option}={value!r}"):
        LsmOptions(**{option: value})


def test_levels_grow_by_their_factor() -> None:
    """Level 1 holds four memtables unless told otherwise, each further level ten times more."""
    assert [LsmOptions().level_bytes(level) >> 20 for level in (1, 2, 3)] == [16, 160, 1600]
    assert LsmOptions(level1_bytes=7, level_multiplier=3).level_bytes(3) == 63
    assert LsmOptions(target_file_bytes=5).file_bytes == 5
    assert LsmOptions(memtable_bytes=9).file_bytes == 9


# --- memory ---


def test_overwriting_the_same_keys_does_not_flush() -> None:
    """The budget counts the bytes in the memtable, not all bytes ever written to it."""
    store = open_store(memtable_bytes=400)
    for number in range(1000):
        store.put(key(number % 3), b"%06d" % number)

    assert not list(store.version.files())
    assert store.get(key(0)) == b"%06d" % 999
    fill(store, range(100))
    assert list(store.version.files())


def test_the_cache_stays_within_its_budget() -> None:
    """Reading everything many times never keeps more blocks than allowed, and some, packed or decoded."""
    store = open_store(memtable_bytes=2000, cache_bytes=3000)
    entries = fill(store, range(300))
    store.flush()
    for key_again in (*(one for one in entries for _ in range(9)), *entries):
        assert store.get(key_again) == entries[key_again]
        store.validate()

    assert 1500 < store._files.cache.used_bytes <= 3000


def test_a_block_is_decoded_when_it_is_read_again_and_again() -> None:
    """Blocks that are read a few times stay packed, and those that are read often become dicts; both answer."""
    store = open_store(memtable_bytes=4000, cache_bytes=1 << 20)
    entries = fill(store, range(100))
    store.flush()
    cache, often = store._files.cache, next(iter(entries))
    for one in list(entries)[::3]:
        assert store.get(one) == entries[one]
    assert len(cache.packed) > 10
    assert not cache.blocks

    for _ in range(9):
        assert store.get(often) == entries[often]
    (block,) = cache.blocks.values()
    assert often in block
    assert not cache.blocks.keys() & cache.packed.keys()
    store.validate()


def test_a_cached_block_is_not_read_again() -> None:
    """The second look-up of a key touches no file."""
    fs = MemoryFileSystem()
    store = open_store(fs, cache_bytes=1 << 20)
    entries = fill(store, range(50))
    store.flush()
    assert {one: store.get(one) for one in entries} == entries
    fs.crash()

    assert {one: store.get(one) for one in entries} == entries
    with pytest.raises(OSError, match="No such file"):
        list(store.scan(b"", None))


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    """A store of many files keeps few of them open."""
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    store = open_store(LocalFileSystem(), str(tmp_path / "s"), compaction="none", max_open_files=3)
    entries = fill(store, range(400))

    assert {one: store.get(one) for one in entries} == entries
    assert len(names(LocalFileSystem(), str(tmp_path / "s"))) > 20
    if before:
        # Three files, and the manifest.
        assert len(os.listdir("/proc/self/fd")) - before <= 4
    store.close()
    store.close()


# --- snapshots and scans ---


def test_a_snapshot_shares_the_memtable_until_the_next_write() -> None:
    """Taking one copies nothing; every kind of write leaves it as it was."""
    store = open_store(memtable_bytes=10_000)
    entries = fill(store, range(5))
    snapshots = []
    for write in (
        lambda: store.put(key(0), b"new"),
        lambda: store.delete(key(1)),
        lambda: store.write_many({key(2): None, key(9): b"nine"}),
        lambda: store.delete_range(key(3), key(5)),
        lambda: store.ingest(iter([(b"z", b"z")])),
        store.flush,
        store.compact_all,
    ):
        expected = content(store)
        snapshots.append((store.snapshot(), expected))
        assert snapshots[-1][0]._memtable is store._memtable
        write()
    assert snapshots[0][1] == entries
    assert content(store) == {key(0): b"new", key(9): b"nine", b"z": b"z"}

    for snapshot, expected in snapshots:
        assert dict(snapshot.scan(b"", None)) == expected


def test_files_stay_while_a_snapshot_needs_them() -> None:
    """Compaction deletes what it merged only when the last snapshot is released, and not before."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    entries = fill(store, range(60))
    store.flush()
    first, second = store.snapshot(), store.snapshot()
    old = set(names(fs))
    fill(store, range(60), "w")
    store.compact_all()
    assert old <= set(names(fs))
    first.release()
    first.release()
    assert old <= set(names(fs))
    assert dict(second.scan(b"", None)) == entries
    second.release()

    assert names(fs) == [file.name for file in store.version.files()]
    assert not old & set(names(fs))


def test_a_snapshot_released_too_late_deletes_nothing() -> None:
    """A closed store's directory stays as it is."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    fill(store, range(60))
    snapshot = store.snapshot()
    store.compact_all()
    store.close()
    before = fs.list_dir("/store")
    assert len(names(fs)) > len(store.version.level_of())
    snapshot.release()

    assert fs.list_dir("/store") == before


def test_an_abandoned_scan_holds_no_file() -> None:
    """A scan that is not read to its end, or not at all, keeps files only as long as it lives."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    fill(store, range(60))
    unread, half_read = store.scan(b"", None), store.scan(b"", None)
    next(half_read)
    store.compact_all()
    assert len(names(fs)) > len(store.version.level_of())
    del unread, half_read
    store.flush()
    store.put(b"a", b"b")
    store.flush()

    assert len(names(fs)) == len(store.version.level_of())


def test_a_scan_sees_neither_later_writes_nor_later_compactions() -> None:
    """A scan gives the entries at the moment of its call."""
    store = open_store()
    entries = fill(store, range(40))
    rows = store.scan(b"", None)
    fill(store, range(80), "later")
    store.delete_range(key(0), key(20))
    store.compact_all()

    assert dict(rows) == entries


# --- checkpoints ---


def test_two_stores_from_one_checkpoint_never_share_a_new_name(tmp_path: Path) -> None:
    """A checkpoint opened twice gives two stores that keep the common files and name new ones apart."""
    fs = LocalFileSystem()
    store = open_store(fs, str(tmp_path / "s"))
    entries = fill(store, range(50))
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    written = store.checkpoint(one)
    store.checkpoint(two)
    common = set(names(fs, one))
    assert common == set(names(fs, two))
    assert list(written) == fs.list_dir(one)
    assert all(os.stat(f"{one}/{name}").st_nlink == 3 for name in common)

    left, right = open_store(fs, one, "left"), open_store(fs, two, "right")
    assert content(left) == content(right) == entries
    fill(left, range(200), "l")
    fill(right, range(200), "r")
    left.compact_all()
    right.compact_all()
    new = [set(names(fs, directory)) - common for directory in (one, two)]
    assert new[0]
    assert not new[0] & new[1]
    assert content(store) == entries
    for each in (store, left, right):
        each.close()


class _WithoutLinks(MemoryFileSystem):
    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    def link(self, source: str, target: str) -> None:
        raise OSError(self.code, os.strerror(self.code), source)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_files_are_copied_where_links_are_refused(code: int) -> None:
    """A checkpoint is the same without links."""
    fs = _WithoutLinks(code)
    store = open_store(fs, sync=True)
    entries = fill(store, range(50))
    store.checkpoint("/copy")
    store.close()
    fs.delete_tree("/store")
    fs.crash()

    assert content(open_store(fs, "/copy", "b")) == entries


def test_a_failing_disk_is_not_taken_for_a_refused_link() -> None:
    """Other errors are raised, and nothing is left of the checkpoint."""
    fs = _WithoutLinks(errno.EIO)
    store = open_store(fs)
    fill(store, range(50))
    with pytest.raises(OSError, match="Input/output error"):
        store.checkpoint("/copy")

    assert not fs.exists("/copy")


def test_a_checkpoint_needs_a_directory_of_its_own() -> None:
    """An existing directory is refused and left alone."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    fs.make_dirs("/there")
    with pytest.raises(FileExistsError, match="/there"):
        store.checkpoint("/there")

    assert fs.list_dir("/there") == []


def test_a_checkpoint_uploads_what_was_flushed_and_merges_later() -> None:
    """Checkpoints compact nothing themselves: the next write does, so their own time stays short."""
    fs = MemoryFileSystem()
    store = open_store(fs, memtable_bytes=100_000)
    for number in range(3):
        store.put(key(0), b"%d" % number)
        store.checkpoint(f"/c{number}")
    assert list(store.version.level_of().values()) == [0, 0, 0]
    store.put(key(1), b"x")

    assert list(store.version.level_of().values()) == [1]
    assert len(names(fs, "/c2")) == 3


# --- opening ---


def test_opening_sweeps_what_nothing_refers_to() -> None:
    """Orphans, temporary files and old manifests go; files that are none of ours stay."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    entries = fill(store, range(30))
    store.flush()
    store.close()
    for name in ("000900-x.sst", "000901-x.sst.inprogress", "MANIFEST-000902-x", "CURRENT.inprogress", "notes.txt"):
        with fs.open_write(f"/store/{name}") as file:
            file.write(b"left")
    store = open_store(fs, unique="b")

    assert content(store) == entries
    kept = [name for name in fs.list_dir("/store") if not name.endswith(".sst")]
    assert [name for name in kept if not name.startswith("MANIFEST")] == ["CURRENT", "notes.txt"]
    assert len(kept) == 3
    assert names(fs) == sorted(store.version.level_of())
    fill(store, range(200))
    assert all(int(name[:6]) > 902 for name in names(fs)), "numbers of orphans are not used again"


def test_a_directory_that_lost_its_current_file_is_refused() -> None:
    """It is not taken for a new store, which would sweep the entries away."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    fill(store, range(30))
    store.flush()
    store.close()
    fs.delete("/store/CURRENT")
    before = fs.list_dir("/store")
    with pytest.raises(CorruptStateError, match=r"/store/CURRENT: is missing although 0000\d\d-a.sst is there"):
        open_store(fs, unique="b")

    assert fs.list_dir("/store") == before


def test_a_directory_of_another_kind_is_refused() -> None:
    """RocksDB's CURRENT is not ours."""
    fs = MemoryFileSystem()
    fs.make_dirs("/store")
    with fs.open_write("/store/CURRENT") as file:
        file.write(b"MANIFEST-000005\n")
    with pytest.raises(CorruptStateError, match="it is no WEIRLSMC file"):
        open_store(fs)


@pytest.mark.parametrize("which", ["CURRENT", "MANIFEST"])
def test_files_of_a_newer_program_are_refused(which: str) -> None:
    """A newer format version is told from damage."""
    fs = MemoryFileSystem()
    open_store(fs).close()
    name = next(name for name in fs.list_dir("/store") if name.startswith(which))
    data = fs.read_bytes(f"/store/{name}")
    if which == "CURRENT":
        newer = seal(CURRENT_MAGIC, 2, b"")
    else:
        newer = preamble(MANIFEST_MAGIC, 2) + data[14:]
        _vouch(fs, name, newer)
    with fs.open_write(f"/store/{name}") as file:
        file.write(newer)
    with pytest.raises(StateSchemaError, match="has format version 2, this program reads up to 1"):
        open_store(fs)


@pytest.mark.parametrize("name", ["../MANIFEST-000001-a", "/MANIFEST-000001-a", "notes.txt"])
def test_the_manifest_is_a_file_of_the_store(name: str) -> None:
    """One elsewhere would be read, and appended to."""
    fs = MemoryFileSystem()
    open_store(fs).close()
    _vouch(fs, name, b"")
    with pytest.raises(CorruptStateError, match="is no name of a manifest"):
        open_store(fs, unique="b")


def _vouch(fs: MemoryFileSystem, name: str, data: bytes) -> None:
    with fs.open_write("/store/CURRENT") as file:
        file.write(seal(CURRENT_MAGIC, 1, msgpack.packb([name, len(data), zlib.crc32(data)])))


def test_a_store_may_be_opened_with_other_options() -> None:
    """Fewer levels, another policy, compression: the content is the same, also after merging."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    entries = fill(store, range(150))
    store.flush()
    store.close()
    changes: list[dict[str, Any]] = [
        {"max_levels": 2},
        {"compaction": "universal", "max_levels": 3},
        {"compression": "zlib", "compaction": "none"},
        {"filter_bits": 3, "memtable_bytes": 50},
    ]
    for number, change in enumerate(changes):
        store = open_store(fs, unique=f"b{number}", **change)
        assert content(store) == entries
        entries |= fill(store, range(140 + number, 170 + number), f"{number}-")
        store.validate()
        store.flush()
        store.close()


# --- bulk loading ---


def test_bulk_loading_goes_as_deep_as_it_fits() -> None:
    """An empty store takes everything into the level that can hold it; what overlaps stays above."""
    store = open_store(memtable_bytes=10_000)
    store.ingest((key(2 * number), b"v" * 20) for number in range(1500))
    files = list(store.version.files())
    assert set(store.version.level_of().values()) == {2}
    assert 40_000 < sum(file.size_bytes for file in files) <= 80_000
    assert len(files) == 3
    store.ingest((key(2 * number + 1), b"w" * 20) for number in range(20))
    assert set(store.version.level_of().values()) == {1, 2}
    store.ingest((key(2 * number + 1), b"w" * 20) for number in range(20, 25))
    assert set(store.version.level_of().values()) == {1, 2}, "beside the others, not above them"

    assert len(content(store)) == 1525
    store.validate()


def test_bulk_loading_puts_new_entries_over_old_tombstones() -> None:
    """A key deleted in memory or in files may be loaded again."""
    store = open_store()
    fill(store, range(20))
    store.delete_range(key(0), key(10))
    store.delete(key(15))
    store.ingest(iter([(key(5), b"five"), (key(15), b"fifteen")]))

    assert store.get(key(5)) == b"five"
    assert store.get(key(15)) == b"fifteen"
    assert store.get(key(6)) is None


@pytest.mark.parametrize("numbers", [[1, 3, 2], [1, 1], [*range(5000), 4999]])
def test_bulk_loading_refuses_unsorted_entries(numbers: list[int]) -> None:
    """The error shows both keys; nothing is stored and no file is left."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    with pytest.raises(StateArgumentError, match=r"key b'k\d{4}' follows b'k\d{4}'"):
        store.ingest((key(number), b"v") for number in numbers)

    assert content(store) == {}
    assert names(fs) == []
    assert names(fs, suffix=".inprogress") == []


def test_bulk_loading_that_breaks_off_leaves_nothing() -> None:
    """When the entries' source raises, nothing is stored, no file is left, and loading can begin anew."""

    def broken() -> Iterator[tuple[bytes, bytes]]:
        for number in range(2000):
            yield key(number), b"v" * 20
        raise ValueError("the source is damaged")

    fs = MemoryFileSystem()
    store = open_store(fs)
    with pytest.raises(ValueError, match="the source is damaged"):
        store.ingest(broken())
    assert names(fs) == names(fs, suffix=".inprogress") == []
    store.ingest((key(number), b"v") for number in range(2000))

    assert len(content(store)) == 2000


# --- compaction ---


def test_deferred_work_is_one_at_a_time_and_flushing_goes_on() -> None:
    """While a compaction waits, level 0 grows; when it is done, the next one takes the rest."""
    executor = DeferredExecutor()
    store = open_store(executor=executor)
    entries = fill(store, range(200))
    assert len(executor.waiting) == 1
    assert len(store.version.levels[0]) > 10
    assert content(store) == entries
    executor.run()

    assert len(store.version.levels[0]) < 3
    assert content(store) == entries
    store.validate()


def test_cancelled_work_leaves_no_file_and_changes_nothing() -> None:
    """Given up at any step, a compaction deletes what it wrote; later steps do nothing."""
    fs = MemoryFileSystem()
    for steps in range(6):
        executor = DeferredExecutor()
        store = open_store(fs, f"/s{steps}", executor=executor, memtable_bytes=2000, target_file_bytes=60)
        entries = fill(store, mixed(1001))
        before, version = fs.list_dir(f"/s{steps}"), store.version
        work = executor.waiting[0]
        for _ in range(steps):
            assert work.step()
        work.cancel()
        work.cancel()

        assert work.step() is None
        assert fs.list_dir(f"/s{steps}") == before
        assert store.version is version
        assert content(store) == entries
        store.close()


def test_bulk_loading_gives_up_a_compaction_that_would_close_its_gap() -> None:
    """A file loaded between two files of a level that are being merged does not end up inside the merged one."""
    executor = DeferredExecutor()
    store = open_store(executor=executor, memtable_bytes=10_000, level0_trigger=2)
    for numbers in (range(10), range(20, 30)):
        store.ingest(iter([(key(number), b"old") for number in numbers]))
    expected = {}
    for numbers in (range(10), range(20, 30)):
        expected.update(fill(store, numbers))
        store.flush()
    assert [len(level) for level in store.version.levels[:2]] == [2, 2]
    assert len(executor.waiting) == 1
    between = {key(number): b"between" for number in range(12, 15)}
    store.ingest(iter(between.items()))
    store.put(key(40), b"later")
    executor.run()

    assert content(store) == {**expected, **between, key(40): b"later"}
    assert [len(level) for level in store.version.levels[:2]] == [0, 1]
    store.validate()


def test_steps_are_bounded_and_count_what_they_move() -> None:
    """A compaction of many files takes many steps, whose bytes add up to what was read and written."""
    executor = DeferredExecutor()
    store = open_store(executor=executor, memtable_bytes=2000, target_file_bytes=60)
    fill(store, mixed(1001))
    store.flush()
    work = executor.waiting[0]
    assert isinstance(work, CompactionWork)
    assert work.name == "compaction into level 1"
    read = sum(file.size_bytes for file in work.task.inputs)
    steps = []
    while (moved := work.step()) is not None:
        steps.append(moved)

    written = store.version.level_size(1)
    assert len(steps) > 5
    assert read / 2 + written < sum(steps) <= read + written
    assert max(steps) < sum(steps) / 3


def test_the_filter_drops_replaces_and_keeps() -> None:
    """Compactions ask it about live entries; what it drops is gone, older versions of it too."""
    asked: list[bytes] = []

    def ask(one: bytes, value: bytes) -> bytes | None:
        asked.append(one)
        return None if value.startswith(b"old") else value.upper() if value.startswith(b"up") else value

    store = open_store(compaction_filter=ask)
    store.put(key(1), b"first version")
    store.compact_all()
    store.write_many({key(1): b"old", key(2): b"up", key(3): b"keep", key(4): b"gone"})
    store.delete(key(4))
    store.flush()
    assert store.get(key(1)) == b"old"
    assert asked == [key(1)]
    snapshot = store.snapshot()
    store.compact_all()

    assert content(store) == {key(2): b"UP", key(3): b"keep"}
    assert asked == [key(1), key(1), key(2), key(3)]
    assert dict(snapshot.scan(b"", None)) == {key(1): b"old", key(2): b"up", key(3): b"keep"}


def test_an_entry_dropped_above_older_ones_does_not_let_them_through() -> None:
    """Where deeper levels may hold an older version, the filter's drop becomes a tombstone."""
    fs = MemoryFileSystem()
    store = open_store(fs, memtable_bytes=1000)
    entries = fill(store, range(20))
    store.compact_all()
    (file,) = store.version.levels[1]
    store._files.install(VersionEdit(removed=(file.name,), added=((2, file),)))
    store.close()

    store = open_store(
        fs, unique="b", level0_trigger=1, compaction_filter=lambda _, value: None if value == b"expired" else value
    )
    for value in (b"kept", b"expired"):
        store.put(key(7), value)
        store.flush()
    assert [len(level) for level in store.version.levels[:3]] == [0, 1, 1]
    assert next(store.version.files()).tombstones == 1

    assert store.get(key(7)) is None
    del entries[key(7)]
    assert content(store) == entries


# --- damage at a distance ---


def test_a_file_of_another_store_is_not_taken_for_ours() -> None:
    """Two files of one size and name, swapped, are told apart by what the manifest knows."""
    fs = MemoryFileSystem()
    for directory, mark in (("/one", "v"), ("/two", "w")):
        store = open_store(fs, directory)
        fill(store, range(3), mark)
        store.flush()
        store.close()
    (name,) = names(fs, "/one")
    assert names(fs, "/two") == [name]
    assert fs.size(f"/one/{name}") == fs.size(f"/two/{name}")
    fs.rename(f"/one/{name}", f"/two/{name}")
    with pytest.raises(CorruptStateError, match=f"/two/{name}: is another file than the one that the manifest names"):
        open_store(fs, "/two", "b")


def test_a_manifest_of_another_checkpoint_is_not_taken_for_ours() -> None:
    """Two whole manifests of one name, swapped, are told apart by what CURRENT vouches for."""
    fs = MemoryFileSystem()
    written = []
    for directory, mark in (("/one", "v"), ("/two", "w")):
        store = open_store(fs, directory)
        fill(store, range(3), mark)
        written.append(store.checkpoint(directory + "-checkpoint"))
    assert written[0] == written[1]
    manifest = next(name for name in written[0] if name.startswith("MANIFEST"))
    fs.rename(f"/one-checkpoint/{manifest}", f"/two-checkpoint/{manifest}")
    with pytest.raises(CorruptStateError, match="are not those that CURRENT vouches for"):
        open_store(fs, "/two-checkpoint", "b")


# --- being compared ---


def test_equal_histories_make_equal_stores() -> None:
    """The same writes give the same files, byte for byte; other writes give others."""
    contents, files = [], []
    for extra in (0, 0, 1):
        fs = MemoryFileSystem()
        store = open_store(fs, compaction="levelled")
        fill(store, range(100 + extra))
        store.delete_range(key(10), key(20))
        contents.append((store.version, store._memtable.columns()))
        files.append({name: fs.read_bytes(f"/store/{name}") for name in fs.list_dir("/store")})

    assert contents[0] == contents[1] != contents[2]
    assert files[0] == files[1]


SCRIPT = """
import zlib
from state_backends.files import MemoryFileSystem
from tests.state_backends.lsm.support import fill, key, mixed, open_store
fs = MemoryFileSystem()
store = open_store(fs, wal=True)
fill(store, mixed(101))
store.delete_range(key(20), key(30))
store.write_many({key(n): None for n in {3, 5, 70}})
store.checkpoint("/checkpoint")
print([(path, zlib.crc32(fs.read_bytes(path))) for path in fs.walk_files("/")])
"""


def test_files_do_not_depend_on_the_hash_seed() -> None:
    """Every file has the same name and the same bytes in every process."""
    files = printed(SCRIPT, "0")

    assert ".sst" in files
    assert files == printed(SCRIPT, "1")


def test_the_kind_tells_data_files() -> None:
    """Only files of entries may be shared between snapshots."""
    kind = LsmStoreKind(replace(tiny(), wal=True))

    assert kind.name == "lsm"
    assert kind.is_data_file("000001-a.sst")
    assert not any(map(kind.is_data_file, ["CURRENT", "MANIFEST-000002-a", "000003-a.wal", "000001-a.sst.inprogress"]))
