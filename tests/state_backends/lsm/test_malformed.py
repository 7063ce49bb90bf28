"""Files of a store that are well framed and malformed inside: refused with an error of ours that names the file."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgpack
import pytest

from state_backends.base import CorruptStateError
from state_backends.codec import preamble, seal
from state_backends.files import MemoryFileSystem
from state_backends.lsm.block import decode_block
from state_backends.lsm.manifest import (
    CURRENT_MAGIC,
    CURRENT_VERSION,
    MANIFEST_MAGIC,
    MANIFEST_VERSION,
    read_current,
    read_manifest,
)
from state_backends.lsm.memtable import Memtable
from state_backends.lsm.records import record
from state_backends.lsm.sst import _Index
from state_backends.lsm.version import VersionEdit
from state_backends.lsm.wal import WAL_MAGIC, WAL_VERSION, replay
from tests.malformed import packed, packed_variants
from tests.state_backends.lsm.support import meta


def check_refusals(read: Callable[[bytes], object], plain: object, path: str) -> None:
    """Most of what is malformed is refused, and nothing else is raised."""
    files = list(packed_variants(packed(plain)))
    refused = 0
    read(packed(plain))
    for data in files:
        try:
            read(data)
        except CorruptStateError as error:
            refused += 1
            if path not in str(error):
                pytest.fail(f"does not name {path}: {error}")
    assert refused > 0.7 * len(files)


def in_a_file(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    if fs.exists(path):
        fs.delete(path)
    with fs.open_write(path) as file:
        file.write(data)


def test_a_manifest() -> None:
    """Numbers and an edit."""
    edit = VersionEdit(
        added=((0, meta(1, 1, 4)), (1, meta(2, 5, 9))), cursors=((1, b"k"),), level0=(meta(1, 1, 4).name,)
    )
    head = preamble(MANIFEST_MAGIC, MANIFEST_VERSION)
    check_refusals(lambda data: read_manifest(head + record(data), "MANIFEST-1"), [7, 3, edit.to_state()], "MANIFEST-1")


def test_the_name_of_a_manifest() -> None:
    """A name and what it vouches for."""
    fs = MemoryFileSystem()
    fs.make_dirs("/store")
    whole = preamble(MANIFEST_MAGIC, MANIFEST_VERSION) + record(packed([7, 3, VersionEdit().to_state()]))
    in_a_file(fs, "/store/MANIFEST-1", whole)

    def read(data: bytes) -> object:
        in_a_file(fs, "/store/CURRENT", seal(CURRENT_MAGIC, CURRENT_VERSION, data))
        return read_current(fs, "/store")

    check_refusals(read, ["MANIFEST-1", len(whole), zlib.crc32(whole)], "/store/")


@pytest.mark.parametrize("plain", [[0, [b"a", b"b"], [b"1", None]], [1, b"a", b"c"]])
def test_a_record_of_the_write_ahead_log(plain: object) -> None:
    """Writes, and the deletion of a range."""
    fs = MemoryFileSystem()

    def read(data: bytes) -> object:
        in_a_file(fs, "/log", preamble(WAL_MAGIC, WAL_VERSION) + record(data))
        return replay(fs, "/log", Memtable())

    check_refusals(read, plain, "/log")


def test_the_index_of_a_file() -> None:
    """First keys, offsets and checksums of blocks, and ranges."""

    def read(data: bytes) -> object:
        try:
            return _Index.from_bytes(data, "1.sst")
        except ValueError as error:
            raise CorruptStateError("1.sst", str(error)) from error

    check_refusals(read, [[b"a", b"k"], [0, 50, 99], [1, 2], [[b"c", b"d"]], b"a", b"z", False, "none"], "1.sst")


def test_a_block() -> None:
    """Keys and values."""

    def read(data: bytes) -> object:
        try:
            return decode_block(data, "none")
        except ValueError as error:
            raise CorruptStateError("1.sst", str(error)) from error

    blocks = list(packed_variants(msgpack.packb([[b"a", b"b"], [b"1", None]])))
    for data in blocks:
        try:
            read(data)
        except CorruptStateError:
            continue
