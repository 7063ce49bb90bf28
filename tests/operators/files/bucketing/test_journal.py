"""The journal of a bucketing sink when it is damaged, or of an older version."""

from __future__ import annotations

import json

import pytest

from engine.elements.errors import StorageError
from state_backends.files import MemoryFileSystem
from tests.operators.files.bucketing.test_sink import ROWS, closed, rows, start


def test_every_changed_byte_of_a_journal_is_found() -> None:
    """It would take back another part, or none: an error, or, at the end of the last line, no difference."""
    fs = MemoryFileSystem()
    first = closed(start(fs), 1, 1)
    closed(start(fs, first, attempt=2), 2, 2)
    journal = f"{ROWS}/.op-uid.parts-0"
    content = fs.read_bytes(journal)
    for at in range(len(content) - 1):
        damaged = content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        with fs.open_write(journal) as file:
            file.write(damaged)
        with pytest.raises(StorageError, match=r"parts-0:\d .*is damaged"):
            start(fs, first, attempt=3)
        assert rows(fs) == ["1", "2"]
    for end in (b"", b"\x0b"):
        with fs.open_write(journal) as file:
            file.write(content[:-1] + end)
        assert start(fs, first, attempt=4).counter("numCommittedFilesRetracted") == (end == b"")
        assert rows(fs) == ["1"]


def test_a_journal_of_an_older_version_is_read() -> None:
    """Its lines have no checksum."""
    fs = MemoryFileSystem()
    first = closed(start(fs), 1, 1)
    closed(start(fs, first, attempt=2), 2, 2)
    journal = f"{ROWS}/.op-uid.parts-0"
    lines = [json.dumps(json.loads(line)[:3]) for line in fs.read_bytes(journal).decode().splitlines()]
    with fs.open_write(journal) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    start(fs, first, attempt=3)
    assert rows(fs) == ["1"]


def test_a_journal_outlives_a_power_cut() -> None:
    """Its lines and its name, also where no other file is beside it: a part that it lost would not be taken back."""
    for checkpoints in (1, 2):
        fs = MemoryFileSystem()
        task = start(fs, bucketer=lambda _: "b")
        older = task.snapshot(1)
        for number in range(2, 2 + checkpoints):
            closed(task, number, number)
        assert len(rows(fs)) == checkpoints
        fs.crash()
        again = start(fs, older, attempt=2, bucketer=lambda _: "b")
        assert again.counter("numCommittedFilesRetracted") == checkpoints
        assert rows(fs) == []
