"""How much incremental checkpoints upload, checkpoint by checkpoint: a floor, and a spike whenever files were merged.

One load, then rounds in each of which a share of all keys is written anew, with a checkpoint after each; at last all
files are merged into one level. As measured with RocksDB: the floor is what was written, spikes come in the rhythm of
the merges of level 0, because each checkpoint forces one file there however small it is, and a merge of everything
uploads everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import median
from typing import Protocol

import pytest

from state_backends.base import KeyGroupRange
from state_backends.files import FileSystem, LocalFileSystem, MemoryFileSystem
from state_backends.lsm import LsmOptions, LsmStoreKind
from state_backends.rocksdb.rocksdb_store import RocksDBOptions, RocksDBStoreKind
from state_backends.rows import IncrementalSnapshotStrategy, OrderedStore, StoreKind
from state_backends.snapshots import CheckpointStorage, IncrementalKeyedStateHandle, SnapshotOptions, run_to_completion

KEYS = 8000
KEY_BYTES, VALUE_BYTES = 16, 100
ENTRY_BYTES = KEY_BYTES + VALUE_BYTES
MEMTABLE_BYTES = 1 << 15
ROUNDS = 13


class Mergeable(OrderedStore, Protocol):
    def compact_all(self) -> None: ...


@dataclass
class Series:
    """Bytes per checkpoint: written for it, and referred to by it."""

    uploaded: list[int]
    full: list[int]

    @property
    def rounds(self) -> list[int]:
        return self.uploaded[1:-1]

    @property
    def floor(self) -> int:
        return min(self.rounds)

    @property
    def spikes(self) -> list[int]:
        """The rounds in which much more than usual was uploaded."""
        return [at for at, uploaded in enumerate(self.rounds) if uploaded > 3 * self.floor]

    @property
    def share(self) -> float:
        """Of what full checkpoints would have uploaded."""
        return sum(self.rounds) / sum(self.full[1:-1])


def key(number: int) -> bytes:
    return b"\0\0" + b"%014d" % number


def value(number: int, version: int) -> bytes:
    """Bytes that cannot be compressed, the same in every run."""
    return blake2b(b"%d %d" % (number, version), digest_size=50).digest() * 2


def updated(fraction: float, round_number: int) -> list[int]:
    """Which keys are written in a round: spread evenly, others in each round."""
    stride = round(1 / fraction)
    return [number for number in range(KEYS) if (number * 7919 + round_number * 104729) % KEYS % stride == 0]


def series(kind: StoreKind, file_system: FileSystem, directory: str, fraction: float) -> Series:
    """Load, rounds, merge."""
    store = kind.open(file_system, f"{directory}/store", "unique")
    strategy = IncrementalSnapshotStrategy(
        store, kind, file_system, f"{directory}/snapshots", KeyGroupRange(0, 0), "backend", lambda: b"meta"
    )
    storage = CheckpointStorage(MemoryFileSystem(), "/storage", "job")
    found = Series([], [])

    def checkpoint() -> None:
        number = len(found.full) + 1
        streams = storage.initialize_location(number).stream_factory(f"subtask-{number}")
        resources = strategy.sync_prepare_resources(number)
        task = strategy.async_snapshot(resources, streams, SnapshotOptions())
        handle = run_to_completion(task).job_manager_state
        assert isinstance(handle, IncrementalKeyedStateHandle)
        strategy.history.complete(number)
        found.uploaded.append(handle.persisted_bytes)
        found.full.append(handle.size_bytes)

    for first in range(0, KEYS, 500):
        store.write_many({key(number): value(number, 0) for number in range(first, first + 500)})
    checkpoint()
    for round_number in range(1, ROUNDS + 1):
        store.write_many({key(number): value(number, round_number) for number in updated(fraction, round_number)})
        checkpoint()
    merge(store)
    checkpoint()
    store.close()
    return found


def merge(store: OrderedStore) -> None:
    compact_all: Callable[[], None] = store.compact_all  # type: ignore[attr-defined]
    compact_all()


def lsm_series(fraction: float, trigger: int = 4) -> Series:
    options = LsmOptions(memtable_bytes=MEMTABLE_BYTES, level0_trigger=trigger)
    return series(LsmStoreKind(options), MemoryFileSystem(), "/local", fraction)


@pytest.mark.parametrize("fraction", [0.001, 0.01])
@pytest.mark.parametrize("trigger", [2, 4])
def test_spikes_come_in_the_rhythm_of_the_merges(fraction: float, trigger: int) -> None:
    """Few writes: every ``trigger`` checkpoints one uploads merged files, all others only what was written."""
    found = lsm_series(fraction, trigger)
    gaps = {after - before for before, after in zip(found.spikes, found.spikes[1:], strict=False)}
    assert gaps == {trigger}
    assert len(found.spikes) >= ROUNDS // trigger - 1


def test_the_floor_is_what_was_written() -> None:
    """Between spikes the upload is a little more than the user's bytes: keys, blocks, filter, and the private files."""
    found = lsm_series(0.01)
    written = ENTRY_BYTES * len(updated(0.01, 1))
    assert written < found.floor < 1.6 * written + 4000
    usual = [uploaded for at, uploaded in enumerate(found.rounds) if at not in found.spikes]
    assert max(usual) < 1.2 * found.floor


def test_the_more_is_written_the_less_is_saved() -> None:
    """Incremental against full, at 0.1, 1 and 10 % of all keys per checkpoint: it rises, and stays below."""
    shares = [lsm_series(fraction).share for fraction in (0.001, 0.01, 0.1)]
    assert shares[0] < shares[1] < shares[2] < 0.9
    assert shares[0] < 0.25


def test_a_merge_of_everything_uploads_everything() -> None:
    """New names, hence new uploads of old data: as much as the first checkpoint."""
    found = lsm_series(0.01)
    assert found.uploaded[0] > KEYS * ENTRY_BYTES
    assert 0.9 < found.uploaded[-1] / found.uploaded[0] < 1.1
    assert found.uploaded[-1] > 5 * median(found.rounds)


def test_the_series_is_the_same_in_every_run() -> None:
    """Byte for byte, since the store and its background work are deterministic."""
    assert lsm_series(0.01) == lsm_series(0.01)


def test_rocksdb_has_the_same_floor(tmp_path: Path) -> None:
    """With its merges off, the real one uploads what was written, too, and everything after a merge."""
    pytest.importorskip("rocksdict")
    options = RocksDBOptions(memtable_bytes=1 << 16, auto_compaction=False)
    found = series(RocksDBStoreKind(options), LocalFileSystem(), str(tmp_path), 0.01)
    written = ENTRY_BYTES * len(updated(0.01, 1))
    # Its private files, options above all, are about 8 kB.
    assert all(written < uploaded < 1.6 * written + 14000 for uploaded in found.rounds)
    assert found.uploaded[-1] > 0.9 * found.uploaded[0] > 0.9 * KEYS * ENTRY_BYTES
