"""The real RocksDB as an ordered store: against a plain dict, and where it needs to be watched."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state_backends.base import CorruptStateError, StateArgumentError
from state_backends.files import LocalFileSystem, MemoryFileSystem
from state_backends.rocksdb.rocksdb_store import RocksDBOptions, RocksDBStore, RocksDBStoreKind
from state_backends.rows import StoreSnapshot

pytest.importorskip("rocksdict")

SMALL = RocksDBOptions(memtable_bytes=1 << 16, cache_bytes=1 << 16, l0_trigger=2)
FILES = LocalFileSystem()


def opened(directory: Path | str, options: RocksDBOptions = SMALL) -> RocksDBStore:
    store = RocksDBStoreKind(options).open(FILES, str(directory), "unique")
    assert isinstance(store, RocksDBStore)
    return store


def content(store: RocksDBStore | StoreSnapshot) -> list[tuple[bytes, bytes]]:
    return list(store.scan(b"", None))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    one = opened(tmp_path / "db")
    yield one
    one.close()


keys = st.binary(min_size=1, max_size=3)
bounds = st.binary(max_size=2)
values = st.binary(max_size=40)


class AgainstADict(RuleBasedStateMachine):
    """Every operation of the port, with snapshots, checkpoints that are opened, and full compactions."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="weir-test-")
        self.store = opened(f"{self.root}/db")
        self.model: dict[bytes, bytes] = {}
        self.pinned: list[tuple[StoreSnapshot, list[tuple[bytes, bytes]]]] = []
        self.checkpoints = 0

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value)
        self.model[key] = value

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.store.delete(key)
        self.model.pop(key, None)

    @rule(entries=st.dictionaries(keys, st.none() | values, max_size=8))
    def write_many(self, entries: dict[bytes, bytes | None]) -> None:
        self.store.write_many(entries)
        for key, value in entries.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(first=bounds, end=bounds)
    def delete_range(self, first: bytes, end: bytes) -> None:
        self.store.delete_range(first, end)
        self.model = {key: value for key, value in self.model.items() if not first <= key < end}

    @rule(prefix=keys, number=st.integers(0, 5))
    def ingest(self, prefix: bytes, number: int) -> None:
        rows = [(prefix + bytes([i]), b"ingested") for i in range(number)]
        rows = [row for row in rows if row[0] not in self.model]
        self.store.ingest(iter(rows))
        self.model.update(rows)

    @rule(wanted=st.lists(keys, max_size=5))
    def get(self, wanted: list[bytes]) -> None:
        expected = [self.model.get(key) for key in wanted]
        assert self.store.get_many(wanted) == expected
        assert [self.store.get(key) for key in wanted] == expected

    @rule(first=bounds, end=st.none() | bounds)
    def scan(self, first: bytes, end: bytes | None) -> None:
        expected = [row for row in sorted(self.model.items()) if first <= row[0] and (end is None or row[0] < end)]
        rows = self.store.scan(first, end)
        # What is written from now on is not seen.
        self.store.put(b"\x01new", b"")
        self.model[b"\x01new"] = b""
        assert list(rows) == expected

    @rule()
    def pin(self) -> None:
        self.pinned.append((self.store.snapshot(), sorted(self.model.items())))

    @precondition(lambda self: self.pinned)
    @rule()
    def read_pinned(self) -> None:
        snapshot, expected = self.pinned.pop(0)
        assert content(snapshot) == expected
        snapshot.release()
        snapshot.release()

    @rule()
    def compact(self) -> None:
        self.store.compact_all()

    @rule()
    def open_a_checkpoint(self) -> None:
        self.checkpoints += 1
        directory = f"{self.root}/chk-{self.checkpoints}"
        assert self.store.checkpoint(directory) == tuple(FILES.list_dir(directory))
        other = opened(directory)
        assert content(other) == sorted(self.model.items())
        other.close()

    @rule()
    def close_and_open(self) -> None:
        """A proper close flushes the memtable."""
        self.pinned.clear()
        self.store.close()
        self.store.close()
        self.store = opened(f"{self.root}/db")

    @invariant()
    def all_rows_are_there(self) -> None:
        assert content(self.store) == sorted(self.model.items())

    def teardown(self) -> None:
        self.pinned.clear()
        self.store.close()
        shutil.rmtree(self.root)


class TestAgainstADict(AgainstADict.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=5, stateful_step_count=25, deadline=None)


@pytest.mark.slow
class TestAgainstADictForLonger(AgainstADict.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_a_checkpoint_consists_of_links_and_private_files(store: RocksDBStore, tmp_path: Path) -> None:
    """Data files are the same file under a second name; all others are not data files."""
    store.put(b"a", b"1")
    names = store.checkpoint(str(tmp_path / "chk"))
    kind = RocksDBStoreKind(SMALL)
    data = [name for name in names if kind.is_data_file(name)]
    assert data
    assert "CURRENT" in names
    for name in data:
        assert (tmp_path / "chk" / name).stat().st_nlink == 2


def test_each_checkpoint_has_what_is_in_memory(store: RocksDBStore, tmp_path: Path) -> None:
    """The log is off, so a checkpoint flushes; and the files before are in it under the same names."""
    store.put(b"a", b"1")
    first = store.checkpoint(str(tmp_path / "1"))
    store.put(b"b", b"2")
    second = store.checkpoint(str(tmp_path / "2"))
    kind = RocksDBStoreKind(SMALL)
    assert {name for name in first if kind.is_data_file(name)} < {name for name in second if kind.is_data_file(name)}


def test_nothing_is_written_to_the_log(store: RocksDBStore, tmp_path: Path) -> None:
    """It would double the work, and a checkpoint is the durability: whatever is written, the log stays empty."""
    store.put(b"a", b"1")
    store.delete(b"a")
    store.write_many({b"b": b"2", b"c": None})
    store.delete_range(b"x", b"y")
    (log,) = (tmp_path / "db").glob("*.log")
    assert log.stat().st_size == 0


def test_a_checkpoint_into_an_existing_directory_is_refused(store: RocksDBStore, tmp_path: Path) -> None:
    """The checkpoint is not mixed with existing files."""
    (tmp_path / "chk").mkdir()
    with pytest.raises(Exception, match="exists"):
        store.checkpoint(str(tmp_path / "chk"))
    assert FILES.list_dir(str(tmp_path / "chk")) == []


def test_a_snapshot_shows_what_was_there_when_it_was_taken(store: RocksDBStore) -> None:
    """Later writes, flushed or not, do not show, at whichever time it is read; scans of it may take turns."""
    store.write_many({b"a": b"1", b"c": b"1", b"d": b"1"})
    snapshot = store.snapshot()
    store.write_many({b"a": b"2", b"b": b"2", b"c": None, b"e": b"2"})
    store.delete_range(b"d", b"e")
    assert content(snapshot) == [(b"a", b"1"), (b"c", b"1"), (b"d", b"1")]

    first, second = snapshot.scan(b"", None), snapshot.scan(b"b", b"d")
    assert [next(first), next(second), next(first)] == [(b"a", b"1"), (b"c", b"1"), (b"c", b"1")]
    assert list(second) == []
    assert list(first) == [(b"d", b"1")]
    assert content(store) == [(b"a", b"2"), (b"b", b"2"), (b"e", b"2")]


def test_ingested_files_leave_no_trace(store: RocksDBStore, tmp_path: Path) -> None:
    """Rows that fail on the way are not loaded, what they raised goes through, and no half file stays."""

    def rows() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"1"
        raise CorruptStateError("somewhere", "a damaged snapshot")

    with pytest.raises(CorruptStateError, match="a damaged snapshot"):
        store.ingest(rows())
    with pytest.raises(Exception, match="ascending"):
        store.ingest(iter([(b"b", b""), (b"a", b"")]))
    assert content(store) == []
    assert not [name for name in FILES.list_dir(str(tmp_path / "db")) if name.startswith("ingest")]


def test_ingest_makes_several_files_of_many_rows(store: RocksDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows there are, none is lost between two files."""
    monkeypatch.setattr("state_backends.rocksdb.rocksdb_store._ROWS_PER_INGESTED_FILE", 10)
    rows = [(b"%03d" % i, b"x") for i in range(35)]
    store.ingest(iter(rows))
    assert content(store) == rows


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.unlink()
    path.write_bytes(data)


def checkpoint_of_many_blocks(tmp_path: Path) -> Path:
    store = opened(tmp_path / "source")
    for i in range(400):
        store.put(b"%04d" % i, b"v" * 100)
    store.checkpoint(str(tmp_path / "chk"))
    store.close()
    (data_file,) = (tmp_path / "chk").glob("*.sst")
    return data_file


@pytest.mark.parametrize("block", [0, 1, 5])
def test_a_scan_never_ends_early_without_a_word(tmp_path: Path, block: int) -> None:
    """The package's iterator just ends at a damaged block; trusting it would restore only a part of the state."""
    data_file = checkpoint_of_many_blocks(tmp_path)
    damage(data_file, block * 4100 + 50)
    store = opened(data_file.parent)
    with pytest.raises(CorruptStateError, match="damaged"):
        content(store)
    with pytest.raises(CorruptStateError, match="damaged"):
        list(store.scan(b"%04d" % (block * 37), b"0399"))
    store.close()


def test_a_get_from_a_damaged_block_is_an_error(tmp_path: Path) -> None:
    """Single or many, never a wrong value, and always as the port's own type."""
    data_file = checkpoint_of_many_blocks(tmp_path)
    damage(data_file, 50)
    store = opened(data_file.parent)
    with pytest.raises(CorruptStateError, match="damaged"):
        store.get(b"0001")
    with pytest.raises(CorruptStateError, match="damaged"):
        store.get_many([b"0399", b"0001"])
    store.close()


def test_a_damaged_manifest_is_an_error_at_open(tmp_path: Path) -> None:
    """Nothing is opened in part."""
    data_file = checkpoint_of_many_blocks(tmp_path)
    (manifest,) = data_file.parent.glob("MANIFEST*")
    data = manifest.read_bytes()
    manifest.unlink()
    manifest.write_bytes(data[:10])
    with pytest.raises(CorruptStateError, match="damaged"):
        opened(data_file.parent)


def test_a_directory_in_use_is_an_error_of_the_disk(store: RocksDBStore, tmp_path: Path) -> None:
    """RocksDB locks its directory."""
    with pytest.raises(OSError, match="lock") as caught:
        opened(tmp_path / "db")
    assert caught.value.errno == errno.EIO


def test_only_the_real_file_system_will_do() -> None:
    """RocksDB would write past any other."""
    with pytest.raises(StateArgumentError, match="MemoryFileSystem"):
        RocksDBStoreKind(SMALL).open(MemoryFileSystem(), "/db", "unique")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("memtable_bytes", 0), ("cache_bytes", -1), ("l0_trigger", 0), ("compaction", "none"), ("compression", "zip")],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any) -> None:
    """The error names the setting."""
    with pytest.raises(StateArgumentError, match=setting):
        RocksDBOptions(**{setting: value})


@pytest.mark.parametrize("compaction", ["level", "universal"])
@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "zstd"])
def test_every_documented_setting_works(tmp_path: Path, compaction: str, compression: str) -> None:
    """The store opens, keeps what is written and gives it back, also without a cache."""
    options = RocksDBOptions(
        memtable_bytes=1 << 16, cache_bytes=0, compaction=compaction, compression=compression, auto_compaction=False
    )
    store = opened(tmp_path / "db", options)
    store.write_many({b"%04d" % i: b"v" * 100 for i in range(2000)})
    store.compact_all()
    assert len(content(store)) == 2000
    store.close()
