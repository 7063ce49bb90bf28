"""The store against a plain dict: random operations, deferred compactions, open scans and snapshots, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from state_backends.base import InlineExecutor
from state_backends.files import MemoryFileSystem
from state_backends.lsm import LsmStore, LsmStoreKind, read_manifest
from state_backends.lsm.memtable import LsmSnapshot
from tests.state_backends.lsm.support import tiny
from tests.state_backends.support import DeferredExecutor

keys = st.one_of(
    st.binary(min_size=0, max_size=2), st.integers(0, 60).map(lambda number: b"k%02d" % number), st.just(b"\xff\xff")
)
values = st.one_of(st.binary(max_size=12), st.integers(0, 255).map(lambda byte: bytes([byte]) * 40))

Model = dict[bytes, bytes]


def within(model: Model, first: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
    """The entries of a range, ascending."""
    return sorted((key, value) for key, value in model.items() if first <= key and (end is None or key < end))


class StoreMachine(RuleBasedStateMachine):
    """Does to a store and to a dict the same."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFileSystem()
        self.model: Model = {}
        self.opened = 0
        self.checkpoints = 0
        self.snapshots: list[tuple[LsmSnapshot, Model]] = []
        self.scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []
        self.bytes_of: dict[str, bytes] = {}

    @initialize(
        compaction=st.sampled_from(["levelled", "levelled", "universal", "none"]),
        compression=st.sampled_from(["none", "none", "zlib"]),
        wal=st.booleans(),
        is_deferred=st.booleans(),
        file_bytes=st.sampled_from([None, 60]),
    )
    def start(self, **chosen: Any) -> None:
        self.deferred = DeferredExecutor() if chosen.pop("is_deferred") else None
        self.options = tiny(target_file_bytes=chosen.pop("file_bytes"), **chosen)
        self.directory = "/store"
        self.open()

    def open(self) -> None:
        """Open the present directory under a new name."""
        self.opened += 1
        kind = LsmStoreKind(self.options, self.deferred or InlineExecutor())
        self.store: LsmStore = kind.open(self.fs, self.directory, f"u{self.opened}")

    def close(self) -> None:
        self.scans.clear()
        for snapshot, _ in self.snapshots:
            snapshot.release()
        self.snapshots.clear()
        self.store.close()
        assert self.deferred is None or not any(work.step() for work in self.deferred.waiting)

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value)
        self.model[key] = value

    @rule(number=st.integers(0, 20), value=values)
    def put_many(self, number: int, value: bytes) -> None:
        entries = {b"k%02d" % (7 * index % 60): value for index in range(number)}
        self.store.write_many(entries)
        self.model.update(entries)

    @rule(entries=st.dictionaries(keys, st.one_of(st.none(), values), max_size=8))
    def write_many(self, entries: dict[bytes, bytes | None]) -> None:
        self.store.write_many(entries)
        for key, value in entries.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.store.delete(key)
        self.model.pop(key, None)

    @rule(first=keys, end=keys)
    def delete_range(self, first: bytes, end: bytes) -> None:
        self.store.delete_range(first, end)
        for key, _ in within(self.model, first, end):
            del self.model[key]

    @rule(entries=st.dictionaries(keys, values, max_size=12))
    def ingest(self, entries: Model) -> None:
        new = {key: value for key, value in sorted(entries.items()) if key not in self.model}
        self.store.ingest(iter(new.items()))
        self.model.update(new)

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert not self.store._memtable

    @rule()
    def compact_all(self) -> None:
        self.store.compact_all()
        version = self.store.version
        assert len(set(version.level_of().values())) <= 1
        assert not any(file.deletes for file in version.files())

    @precondition(lambda self: self.deferred is not None)
    @rule(steps=st.integers(1, 4))
    def background(self, steps: int) -> None:
        for _ in range(steps):
            self.deferred.step()

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(wanted=st.lists(keys, max_size=10))
    def get_many(self, wanted: list[bytes]) -> None:
        assert self.store.get_many(wanted) == [self.model.get(key) for key in wanted]

    @rule(first=keys, end=st.one_of(st.none(), keys))
    def scan(self, first: bytes, end: bytes | None) -> None:
        assert list(self.store.scan(first, end)) == within(self.model, first, end)

    @rule(first=keys, read=st.integers(0, 3))
    def begin_scan(self, first: bytes, read: int) -> None:
        rows, expected = self.store.scan(first, None), within(self.model, first, None)
        assert list(islice(rows, read)) == expected[:read]
        self.scans.append((rows, expected[read:]))

    @precondition(lambda self: self.scans)
    @rule(data=st.data())
    def end_scan(self, data: st.DataObject) -> None:
        rows, expected = self.scans.pop(data.draw(st.integers(0, len(self.scans) - 1)))
        assert list(rows) == expected

    @rule()
    def snapshot(self) -> None:
        self.snapshots.append((self.store.snapshot(), dict(self.model)))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data(), first=keys, end=st.one_of(st.none(), keys), ends=st.booleans())
    def read_snapshot(self, data: st.DataObject, first: bytes, end: bytes | None, ends: bool) -> None:
        index = data.draw(st.integers(0, len(self.snapshots) - 1))
        snapshot, model = self.snapshots[index]
        assert list(snapshot.scan(first, end)) == within(model, first, end)
        if ends:
            snapshot.release()
            del self.snapshots[index]

    @rule(goes_on_there=st.booleans())
    def checkpoint(self, goes_on_there: bool) -> None:
        self.checkpoints += 1
        directory = f"/checkpoint-{self.checkpoints}"
        written = self.store.checkpoint(directory)
        assert list(written) == self.fs.list_dir(directory)
        for name in written:
            self.check_unique(directory, name)
        manifest = next(name for name in written if name.startswith("MANIFEST"))
        described = read_manifest(self.fs.read_bytes(f"{directory}/{manifest}"), manifest)
        assert list(described.version.files()) == list(self.store.version.files())
        if goes_on_there:
            self.close()
            self.directory = directory
            self.open()
            assert list(self.store.scan(b"", None)) == within(self.model, b"", None)

    def check_unique(self, directory: str, name: str) -> None:
        """A data file's name stands for the same bytes for ever."""
        if LsmStoreKind().is_data_file(name):
            data = self.fs.read_bytes(f"{directory}/{name}")
            assert self.bytes_of.setdefault(name, data) == data, name

    @rule()
    def restart(self) -> None:
        if not self.options.wal:
            self.store.flush()
        self.close()
        self.open()
        assert list(self.store.scan(b"", None)) == within(self.model, b"", None)

    @invariant()
    def valid(self) -> None:
        if hasattr(self, "store"):
            self.store.validate()

    @invariant()
    def keeps_only_what_somebody_needs(self) -> None:
        is_busy = self.scans or self.snapshots or (self.deferred and self.deferred.waiting)
        if hasattr(self, "store") and not is_busy:
            self.store._files.delete_obsolete()
            files = {name for name in self.fs.list_dir(self.directory) if name.endswith(".sst")}
            assert files == set(self.store.version.level_of())


StoreMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestStoreMachine = StoreMachine.TestCase
