"""Entries of one width are merged and written as arrays; the files are those that the general way makes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import starmap
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given, settings, strategies as st

from state_backends.base import BackgroundWork, CorruptStateError, StateTtlConfig, ValueStateDescriptor
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.lsm import LsmOptions, LsmStore, bloom, compaction_work, fixed_width, sst
from state_backends.lsm.block import encode_block
from state_backends.lsm.bloom import build_filter, build_filter_at_once
from state_backends.lsm.fixed_width import key_hashes
from tests.state_backends.lsm.support import content, names, open_store
from tests.state_backends.ttl.support import Clock, backend

np = pytest.importorskip("numpy")

Writes = list[tuple[bytes, bytes | None]]

NEVER = 1 << 60


@contextmanager
def arrays_from(entries: int) -> Iterator[None]:
    """Arrays are used from so many entries on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_width, "FEWEST_ENTRIES", entries)
        yield


def data_files(fs: FileSystem) -> list[bytes]:
    return [fs.read_bytes(f"/store/{name}") for name in names(fs)]


def written(
    writes: Sequence[Writes], fewest: int, block_bytes: int, **options: object
) -> tuple[list[bytes], dict[bytes, bytes]]:
    """The files and the content of a store after some memtables, which it merges whenever a compaction is due."""
    fs = MemoryFileSystem()
    sizes = {"memtable_bytes": 1000, "target_file_bytes": 150, "level1_bytes": 300, "block_bytes": block_bytes}
    with arrays_from(fewest):
        store = open_store(fs, **sizes, **options)
        for memtable in writes:
            store.write_many(dict(memtable))
            store.flush()
        store.validate()
        before = data_files(fs)
        store.compact_all()
        store.validate()
        found = content(store), {key: store.get(key) for memtable in writes for key, _ in memtable}
    assert found[0] == {key: value for key, value in found[1].items() if value is not None}
    assert not [name for name in fs.list_dir("/store") if name.endswith(".inprogress")]
    return [*before, *data_files(fs)], found[0]


# Zeros at the end among them, which numpy's strings leave out when they are shown.
wide_keys = st.lists(st.sampled_from([0, 1, 0x61, 0xFF]), min_size=4, max_size=4).map(bytes)
some_keys = st.one_of(wide_keys, wide_keys, st.binary(min_size=1, max_size=4))
equal_values = st.binary(min_size=3, max_size=3)
some_values = st.one_of(equal_values, st.binary(max_size=5), st.none())


def memtables(keys: st.SearchStrategy[bytes], values: st.SearchStrategy[bytes | None]) -> st.SearchStrategy:
    entries = st.dictionaries(keys, values, min_size=1, max_size=40)
    return st.lists(entries.map(lambda one: list(one.items())), max_size=7)


@settings(max_examples=60)
@given(
    st.one_of(starmap(memtables, [(wide_keys, equal_values), (some_keys, equal_values), (wide_keys, some_values)])),
    st.sampled_from([1, 20, 60, 150]),
)
@example([[(b"%03d\0" % number, b"abc") for number in range(start, 99, 3)] for start in (0, 1, 2, 0)], 150)
def test_the_files_are_those_of_the_general_way(writes: list[Writes], block_bytes: int) -> None:
    """With arrays and without, every file has the same bytes, and the store holds what was written last."""
    model = {key: value for memtable in writes for key, value in memtable}

    with_arrays = written(writes, 1, block_bytes)
    assert with_arrays == written(writes, NEVER, block_bytes)
    assert with_arrays[1] == {key: value for key, value in model.items() if value is not None}


def test_flushes_and_compactions_use_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of one width are packed and unpacked as arrays; small memtables and other entries are not."""
    calls: list[str] = []
    for name in ("pack_blocks", "unpack_blocks"):
        monkeypatch.setattr(sst, name, _noting(calls, name, getattr(sst, name)))
    even = [[(b"%04d" % number, b"value") for number in range(start, 60, 6)] for start in range(6)]
    uneven = [[(b"%d" % number, b"value") for number in range(start, 60, 6)] for start in range(6)]

    written(uneven, 1, 60)
    written(even, NEVER, 60)
    assert not calls
    written(even, 1, 60)
    assert calls.count("pack_blocks") > 3
    assert calls.count("unpack_blocks") > 3


def _noting(calls: list[str], name: str, call: Callable[..., object]) -> Callable[..., object]:
    def noted(*args: object) -> object:
        calls.append(name)
        return call(*args)

    return noted


def _without_odd_keys(key: bytes, value: bytes) -> bytes | None:
    return None if key[-1] & 1 else value + value


@pytest.mark.parametrize("options", [{"compression": "zlib"}, {"compaction_filter": _without_odd_keys}])
def test_options_that_arrays_do_not_serve(options: dict[str, object]) -> None:
    """Compressed files, and those that a filter changes, are made the general way."""
    entries = [[(b"%04d" % number, b"value") for number in range(start, 60, 6)] for start in range(6)]

    assert written(entries, 1, 60, **options) == written(entries, NEVER, 60, **options)


@pytest.mark.parametrize("ttl", [None, StateTtlConfig(1_000)])
def test_state_that_cannot_expire_is_merged_as_arrays(
    monkeypatch: pytest.MonkeyPatch, ttl: StateTtlConfig | None
) -> None:
    """A keyed backend asks for no row in compactions, until a state with time-to-live is declared."""
    calls: list[str] = []
    monkeypatch.setattr(compaction_work, "merged_fixed", _noting(calls, "merged_fixed", compaction_work.merged_fixed))
    keyed: Any = backend("lsm", Clock())
    state = keyed.value_state(ValueStateDescriptor("counts", ttl=ttl))
    with arrays_from(1):
        for count in (100, 200):
            state.update_many(range(50), [count] * 50)
            keyed._access.opened.flush()
        keyed._access.opened.compact_all()

    assert state.get_many(list(range(50))) == [200] * 50
    assert calls == ([] if ttl else ["merged_fixed"])


def test_a_range_that_is_deleted() -> None:
    """A compaction with range tombstones deletes what they cover: arrays hold no tombstones."""
    entries = {b"%04d" % number: b"value" for number in range(60)}
    with arrays_from(1):
        store = open_store(memtable_bytes=10_000)
        store.write_many(entries)
        store.flush_only()
        store.delete_range(b"0010", b"0050")
        store.write_many({b"%04d" % number: b"again" for number in range(30, 40)})
        store.flush_only()
        store.compact_all()

    assert sorted(content(store)) == [b"%04d" % number for number in (*range(10), *range(30, 40), *range(50, 60))]


def test_files_from_before_compression_was_switched_on() -> None:
    """A compaction compresses what it writes, even when it reads files of one width that are not compressed."""
    fs = MemoryFileSystem()
    entries = {b"%04d" % number: b"value" for number in range(60)}
    with arrays_from(1):
        store = open_store(fs, memtable_bytes=10_000)
        store.write_many(entries)
        store.flush()
        store.close()
        store = open_store(fs, unique="b", compression="zlib")
        store.compact_all()
        store.close()
        again = open_store(fs, unique="c")

    assert content(again) == entries


@pytest.mark.parametrize("width", [1, 5, 255])
@pytest.mark.parametrize("entries", [1, 2, 15, 16, 17, (1 << 16) - 1, 1 << 16])
def test_blocks_of_any_number_of_entries(entries: int, width: int) -> None:
    """A block made of arrays has the bytes of one made of objects, and gives the arrays back."""
    keys, values = [b"%0255d" % number for number in range(entries)], [b"v"] * entries
    keys = [key[-width:] for key in keys]
    columns = fixed_width.FixedColumns(
        np.frombuffer(b"".join(keys), np.uint8).reshape(entries, -1), np.full((entries, 1), ord("v"), np.uint8)
    )
    data, size, first_keys = fixed_width.pack_blocks(columns, entries)
    read = fixed_width.unpack_blocks(data, [size], fixed_width.Widths(width, 1))

    assert data == encode_block(keys, list(values), "none")
    assert first_keys == keys[:1]
    assert (read.keys == columns.keys).all()
    assert (read.values == columns.values).all()


def two_files(store: LsmStore) -> dict[bytes, bytes]:
    """A file of entries of one width, and an older one that ends with blocks of the same size and other widths."""
    older = {b"k%03d" % number: b"abc" for number in range(400)}
    newer = {b"k%03d" % number: b"a" * (3 if number < 300 else 2 + number % 2 * 2) for number in range(200, 600)}
    for entries in (newer, older):
        store.write_many(entries)
        store.flush_only()
    return {**newer, **older}


def test_a_block_of_another_width_among_blocks_of_the_same_size() -> None:
    """The compaction notices it while it merges, begins again without arrays, and leaves no file of its first try."""
    fs = MemoryFileSystem()
    with arrays_from(1):
        store = open_store(fs, memtable_bytes=10_000, block_bytes=28, compaction="none", target_file_bytes=300)
        entries = two_files(store)
        sizes = {len(set(store._files.table(name).block_sizes(0, 99))) for name in names(fs)}
        assert sizes == {1}
        store.compact_all()

    assert content(store) == entries
    assert set(fs.list_dir("/store")) == {*names(fs), *(n for n in fs.list_dir("/store") if "MANIFEST" in n), "CURRENT"}
    assert names(fs) == [file.name for file in store.version.files()]
    store.validate()


def test_a_damaged_block_is_found_when_it_is_merged() -> None:
    """A compaction with arrays checks every block that it reads against its checksum."""
    fs = MemoryFileSystem()
    with arrays_from(1):
        store = open_store(fs, memtable_bytes=10_000, block_bytes=28, compaction="none")
        for _ in range(2):
            store.write_many({b"k%03d" % number: b"abc" for number in range(40)})
            store.flush_only()
        name = names(fs)[0]
        size = store._files.table(name).block_bytes(0)
        store.close()
        rules = [FaultRule(FileFault.BIT_FLIP, "open_random", f"*/{name}", flip_bit=8 * (2 * size + 5))]
        again = open_store(FaultInjectingFileSystem(fs, rules), unique="b", compaction="none")
        with pytest.raises(CorruptStateError, match=f"{name}: damaged: block 2 does not match its checksum"):
            again.compact_all()


def test_a_store_works_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy is no part of the base install: large memtables of one width are then written the general way."""
    monkeypatch.setattr(fixed_width, "has_numpy", lambda: False)
    for module in (fixed_width, bloom, sst):
        monkeypatch.setattr(module, "np", None)
    entries = [[(b"%04d" % number, b"value") for number in range(start, 60, 3)] for start in range(3)]

    assert written(entries, 1, 60)[1] == dict(pair for memtable in entries for pair in memtable)


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=300), st.integers(1, 20))
def test_a_filter_made_at_once_is_the_same(hashes: list[int], bits: int) -> None:
    """Keys that share a word keep all their bits."""
    at_once: array[int] = build_filter_at_once(np.array(hashes, np.uint32), bits)

    assert at_once == build_filter(hashes, len(hashes), bits)


@given(st.integers(1, 20), st.data())
def test_hashes_of_all_keys_at_once(width: int, data: st.DataObject) -> None:
    """They are the crc32 of each key."""
    keys = data.draw(st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=20))
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, width)

    assert key_hashes(rows).tolist() == list(map(crc32, keys))


def test_a_compaction_that_begins_again_counts_what_it_had_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job pays for each step by its bytes, so no step may have fewer than none."""
    monkeypatch.setattr(compaction_work, "BLOCKS_AT_ONCE", 1)
    steps: list[int] = []

    class Steps:
        def submit(self, work: BackgroundWork) -> None:
            steps.extend(iter(work.step, None))

    fs = MemoryFileSystem()
    options = LsmOptions(memtable_bytes=NEVER, level0_trigger=2, target_file_bytes=4_000)
    store = LsmStore(fs, "/store", "u", options, Steps())
    for parity in (0, 1):
        store.write_many({key.to_bytes(4, "big"): b"12345678" for key in range(parity, 8_000, 2)})
        if parity:
            store.put((9_000).to_bytes(4, "big"), b"a longer value")
        store.flush()
    assert len(steps) > 2
    assert min(steps) >= 0
    assert len(content(store)) == 8_001
