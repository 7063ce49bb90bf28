"""Reading anywhere in a file, on every file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_backends.files import (
    FaultInjectingFileSystem,
    FaultRule,
    FileFault,
    FileSystem,
    LocalFileSystem,
    MemoryFileSystem,
    RandomAccessFile,
)


class _WithoutPositionalReads(MemoryFileSystem):
    """What a file system gives that does not know better."""

    def open_random(self, path: str) -> RandomAccessFile:
        return FileSystem.open_random(self, path)


@pytest.fixture(params=["local", "memory", "faulty", "default"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    if request.param == "local":
        return LocalFileSystem()
    if request.param == "faulty":
        return FaultInjectingFileSystem(MemoryFileSystem())
    return MemoryFileSystem() if request.param == "memory" else _WithoutPositionalReads()


@pytest.fixture
def path(fs: FileSystem, tmp_path: Path) -> str:
    """A file of 100 bytes."""
    fs.make_dirs(str(tmp_path))
    path = str(tmp_path / "file")
    with fs.open_write(path) as file:
        file.write(bytes(range(100)))
    return path


def test_any_bytes_can_be_read(fs: FileSystem, path: str) -> None:
    """Bytes come from where they are asked for, in any order, and end where the file ends."""
    file = fs.open_random(path)

    assert file.size == 100
    assert file.read_at(90, 5) == bytes(range(90, 95))
    assert file.read_at(0, 3) == b"\0\1\2"
    assert file.read_at(98, 10) == bytes([98, 99])
    assert file.read_at(100, 1) == b""
    assert file.read_at(7, 0) == b""
    file.close()
    file.close()


def test_an_open_file_outlives_its_name(fs: FileSystem, path: str) -> None:
    """A reader of a deleted file reads on."""
    file = fs.open_random(path)
    fs.delete(path)

    assert file.read_at(10, 2) == bytes([10, 11])
    file.close()


def test_a_missing_file_cannot_be_opened(fs: FileSystem, path: str) -> None:
    """The error is the operating system's."""
    with pytest.raises(FileNotFoundError):
        fs.open_random(path + "-not")


def test_a_reader_does_not_survive_a_crash() -> None:
    """After a crash of the machine an open file is of no use."""
    memory = MemoryFileSystem()
    with memory.open_write("/file") as file:
        file.write(b"x")
    reader = memory.open_random("/file")
    memory.crash()
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.read_at(0, 1)


def test_faults_strike_random_reads() -> None:
    """Opening, each read and closing are calls that a rule can strike; a flipped bit stays where it is."""
    memory = MemoryFileSystem()
    with memory.open_write("/file") as file:
        file.write(bytes(10))
    flipping = FaultInjectingFileSystem(memory, [FaultRule(FileFault.BIT_FLIP, "open_random", flip_bit=8 * 4 + 1)])
    reader = flipping.open_random("/file")
    assert reader.read_at(0, 10) == b"\0\0\0\0\2\0\0\0\0\0"
    assert reader.read_at(4, 1) == b"\2"
    assert reader.read_at(5, 5) == bytes(5)
    reader.close()
    assert [call.operation for call in flipping.calls] == ["open_random", "read_at", "read_at", "read_at", "close"]

    failing = FaultInjectingFileSystem(memory, [FaultRule(FileFault.ERROR_BEFORE, "read_at", at_call=2)])
    reader = failing.open_random("/file")
    assert reader.read_at(0, 1) == b"\0"
    with pytest.raises(OSError, match="Input/output error"):
        reader.read_at(0, 1)
    missing = FaultInjectingFileSystem(memory, [FaultRule(FileFault.MISSING, "open_random")])
    with pytest.raises(FileNotFoundError):
        missing.open_random("/file")
