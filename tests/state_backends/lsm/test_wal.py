"""The write-ahead log: acknowledged writes are there again, a torn end is not."""

from __future__ import annotations

import pytest

from state_backends.base import CorruptStateError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.state_backends.lsm.support import content, fill, key, names, open_store


def logs(fs: MemoryFileSystem) -> list[str]:
    return names(fs, suffix=".wal")


def test_without_a_log_unflushed_writes_are_lost() -> None:
    """Closing flushes nothing: the checkpoint is the durability."""
    fs = MemoryFileSystem()
    store = open_store(fs, memtable_bytes=1000)
    store.put(key(1), b"one")
    store.flush()
    store.put(key(2), b"two")
    store.close()

    assert logs(fs) == []
    assert content(open_store(fs, unique="b")) == {key(1): b"one"}


def test_with_a_log_every_kind_of_write_is_there_again() -> None:
    """Puts, deletes, groups and ranges are repeated in their order, and become a file."""
    fs = MemoryFileSystem()
    store = open_store(fs, memtable_bytes=10_000, wal=True)
    entries = fill(store, range(10))
    store.delete(key(0))
    store.write_many({key(1): None, key(2): b"two"})
    store.write_many({})
    store.delete_range(key(4), key(8))
    store.put(key(5), b"five")
    expected = {**entries, key(2): b"two", key(5): b"five"}
    for number in (0, 1, 4, 6, 7):
        del expected[key(number)]
    store.close()
    assert len(logs(fs)) == 1
    store = open_store(fs, unique="b", wal=True)

    assert content(store) == expected
    assert not store._memtable
    assert len(logs(fs)) == 1
    assert logs(fs)[0].endswith("-b.wal")


def test_a_log_is_read_although_logging_was_switched_off() -> None:
    """Writes that an earlier opening logged count; afterwards no log is left."""
    fs = MemoryFileSystem()
    store = open_store(fs, wal=True)
    store.put(key(1), b"one")
    store.close()
    store = open_store(fs, unique="b")

    assert content(store) == {key(1): b"one"}
    assert logs(fs) == []


def test_logs_end_with_the_memtable_that_they_stand_for() -> None:
    """After a flush the old log is gone, and one log is left."""
    fs = MemoryFileSystem()
    store = open_store(fs, wal=True)
    first = logs(fs)
    entries = fill(store, range(100))

    assert len(logs(fs)) == 1
    assert logs(fs) != first
    store.close()
    assert content(open_store(fs, unique="b")) == entries


@pytest.mark.parametrize("cut", [1, 4, 11])
def test_a_torn_end_is_left_out(cut: int) -> None:
    """A log that lacks the end of its last record gives all records before, at each opening."""
    fs = MemoryFileSystem()
    store = open_store(fs, wal=True)
    store.put(key(1), b"one")
    store.put(key(2), b"two")
    store.close()
    (log,) = logs(fs)
    fs.truncate(f"/store/{log}", fs.size(f"/store/{log}") - cut)
    store = open_store(fs, unique="b", wal=True)

    assert content(store) == {key(1): b"one"}
    store.close()
    assert content(open_store(fs, unique="c", wal=True)) == {key(1): b"one"}


def test_a_log_that_had_only_begun_is_empty() -> None:
    """A crash while a log is made leaves a piece of its first bytes, or room for them."""
    for left in (b"", b"WEIR", bytes(30)):
        fs = MemoryFileSystem()
        open_store(fs, wal=True).close()
        (log,) = logs(fs)
        with fs.open_write(f"/store/{log}") as file:
            file.write(left)

        assert content(open_store(fs, unique="b")) == {}


def test_damage_before_the_end_of_a_log_is_found() -> None:
    """A flipped byte in the middle is no torn end: acknowledged writes stand behind it."""
    fs = MemoryFileSystem()
    store = open_store(fs, wal=True)
    store.put(key(1), b"one")
    store.put(key(2), b"two")
    store.close()
    (log,) = logs(fs)
    data = fs.read_bytes(f"/store/{log}")
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with fs.open_write(f"/store/{log}") as file:
            file.write(bytes(damaged))
        with pytest.raises(CorruptStateError, match=log):
            open_store(fs, unique="b")


@pytest.mark.parametrize("kind", [FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER, FileFault.TORN_WRITE])
@pytest.mark.parametrize("before", [0, 1])
def test_a_write_that_failed_never_comes_back(kind: FileFault, before: int) -> None:
    """It did not happen: not now, and not after a crash either, once something else was written."""
    memory = MemoryFileSystem()
    fs = FaultInjectingFileSystem(memory, [FaultRule(kind, "write", "*.wal", at_call=2 + before, keep_bytes=9)])
    store = open_store(fs, wal=True, sync=True)
    expected = {key(0): b"before"} if before else {}
    store.write_many(expected)
    with pytest.raises(OSError, match="Input/output error"):
        store.put(key(1), b"failed")
    assert store.get(key(1)) is None
    store.put(key(2), b"next")
    memory.crash()

    assert content(open_store(memory, unique="b")) == {**expected, key(2): b"next"}


def test_bulk_loading_that_failed_never_comes_back() -> None:
    """Its edit may be in the manifest; the next write makes sure that it does not count, whatever happens then."""
    memory = MemoryFileSystem()
    fs = FaultInjectingFileSystem(memory, [FaultRule(FileFault.ERROR_AFTER, "fsync", "*/MANIFEST*-a", at_call=2)])
    store = open_store(fs, wal=True, sync=True)
    with pytest.raises(OSError, match="Input/output error"):
        store.ingest(iter([(key(1), b"failed")]))
    assert store.get(key(1)) is None
    store.put(key(2), b"next")
    memory.crash()

    assert content(open_store(memory, unique="b")) == {key(2): b"next"}
