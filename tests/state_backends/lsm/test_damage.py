"""Damage to any byte of any file of a checkpoint is found: never another value, never a bare traceback."""

from __future__ import annotations

import functools

import pytest

from state_backends.base import CorruptStateError, StateSchemaError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.lsm import LsmStore
from state_backends.lsm.sst import _CRC, _FIELDS, SST_MAGIC
from tests.state_backends.lsm.support import content, fill, key, mixed, names, open_store


@functools.cache
def checkpoint_files(compression: str) -> dict[str, bytes]:
    """The files of a small checkpoint: two levels, tombstones of both kinds."""
    fs = MemoryFileSystem()
    store = open_store(fs, memtable_bytes=10_000, compression=compression)
    fill(store, mixed(17))
    store.compact_all()
    store.delete(key(3))
    store.delete_range(key(5), key(8))
    store.put(key(20), b"new")
    store.checkpoint("/checkpoint")
    assert [len(level) for level in store.version.levels] == [1, 1, 0, 0, 0]
    return {name: fs.read_bytes(f"/checkpoint/{name}") for name in fs.list_dir("/checkpoint")}


def directory_of(files: dict[str, bytes]) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dirs("/store")
    for name, data in files.items():
        with fs.open_write(f"/store/{name}") as file:
            file.write(data)
    return fs


def read_everything(store: LsmStore) -> None:
    """Each key by itself, and all of them."""
    for number in range(22):
        store.get(key(number))
    content(store)


def assert_refused(files: dict[str, bytes], what: object) -> None:
    """Opening or reading the directory raises the error for damage."""
    try:
        read_everything(open_store(directory_of(files), unique="b"))
    except CorruptStateError:
        return
    pytest.fail(f"not found: {what}")


def kinds() -> list[str]:
    return ["level 0", "level 1", "MANIFEST", "CURRENT"]


def name_of(kind: str, files: dict[str, bytes]) -> str:
    if kind.startswith("level"):
        store = open_store(directory_of(files), unique="b")
        return store.version.levels[int(kind[-1])][0].name
    return next(name for name in files if name.startswith(kind))


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("kind", kinds())
def test_every_flipped_byte_is_found(kind: str, compression: str) -> None:
    """One changed byte anywhere makes opening or reading fail with the error for damage."""
    files = checkpoint_files(compression)
    name = name_of(kind, files)
    for position in range(len(files[name])):
        damaged = bytearray(files[name])
        damaged[position] ^= 1 << (position % 8)
        assert_refused({**files, name: bytes(damaged)}, (name, position))


@pytest.mark.parametrize("kind", kinds())
def test_every_truncation_is_found(kind: str) -> None:
    """A file that lacks any number of bytes at its end is refused."""
    files = checkpoint_files("none")
    name = name_of(kind, files)
    for size in range(len(files[name])):
        assert_refused({**files, name: files[name][:size]}, (name, size))


@pytest.mark.parametrize("kind", kinds())
def test_every_missing_file_is_found(kind: str) -> None:
    """A file that is not there is refused by its name."""
    files = checkpoint_files("none")
    name = name_of(kind, files)
    left = {other: data for other, data in files.items() if other != name}
    with pytest.raises(CorruptStateError, match="is missing"):
        open_store(directory_of(left), unique="b")


def test_undamaged_files_are_accepted() -> None:
    """The checks above fail because of the damage."""
    for compression in ("none", "zlib"):
        store = open_store(directory_of(checkpoint_files(compression)), unique="b")

        assert sorted(content(store)) == [key(number) for number in (0, 1, 2, 4, *range(8, 17), 20)]
        read_everything(store)


def test_blocks_that_changed_places_are_found() -> None:
    """Two whole blocks of one size, swapped, do not pass for each other."""
    fs = MemoryFileSystem()
    store = open_store(fs, memtable_bytes=10_000)
    for number in range(16):
        store.put(key(number), b"v%04d" % number)
    store.flush()
    (name,) = names(fs)
    table = store._files.table(name)
    size = table.block_bytes(0)
    assert table.block_bytes(1) == size
    data = fs.read_bytes(f"/store/{name}")
    store.checkpoint("/checkpoint")
    swapped = data[size : 2 * size] + data[:size] + data[2 * size :]
    files = {one: fs.read_bytes(f"/checkpoint/{one}") for one in fs.list_dir("/checkpoint")}

    assert_refused({**files, name: swapped}, "swapped blocks")


def test_a_file_of_a_newer_program_is_told_from_damage() -> None:
    """A newer format version with a right checksum asks for the newer program."""
    import zlib

    files = dict(checkpoint_files("none"))
    name = name_of("level 0", files)
    data = files[name]
    at = len(data) - len(SST_MAGIC) - _CRC.size - _FIELDS.size
    *fields, version = _FIELDS.unpack_from(data, at)
    newer = _FIELDS.pack(*fields, version + 1)
    files[name] = data[:at] + newer + _CRC.pack(zlib.crc32(newer)) + SST_MAGIC
    with pytest.raises(StateSchemaError, match=f"{name}: has format version 2, this program reads up to 1"):
        open_store(directory_of(files), unique="b")


def test_a_bit_that_flips_while_reading_is_found() -> None:
    """A disk that gives back another bit than it holds is found when the block is read."""
    files = checkpoint_files("none")
    name = name_of("level 1", files)
    rules = [FaultRule(FileFault.BIT_FLIP, "open_random", f"*/{name}", flip_bit=100)]
    store = open_store(FaultInjectingFileSystem(directory_of(files), rules), unique="b")
    with pytest.raises(CorruptStateError, match=f"{name}: damaged: block 0 does not match its checksum"):
        read_everything(store)
