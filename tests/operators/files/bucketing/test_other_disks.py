"""A bucketing sink on file systems that say what is not so, show files late, or lose their power."""

from __future__ import annotations

import pytest

from engine.elements.errors import StorageError
from state_backends.files import MemoryFileSystem
from tests.operators.files.bucketing.test_sink import ROWS, files, rows, start


class Untrue(MemoryFileSystem):
    """Says that it has cut files, and has not."""

    def truncate(self, path: str, size_bytes: int) -> None:
        """Leave them as they are."""


def test_a_file_system_that_only_says_that_it_cuts_files_is_found_out() -> None:
    """Rows after the checkpoint would come twice."""
    fs = Untrue()
    task = start(fs)
    task.process([1])
    checkpoint = task.snapshot(1)
    task.process([2])
    task.advance_ms(200)
    assert list(files(fs)) == ["_part-0-0.pending"]
    start(fs, checkpoint, attempt=2)
    assert rows(fs) == ["1"]


class Late(MemoryFileSystem):
    """Does not show a file that another process has just made."""

    def exists(self, path: str) -> bool:
        return not path.endswith(".in-progress") and super().exists(path)

    def list_dir(self, path: str) -> list[str]:
        return [name for name in super().list_dir(path) if not name.endswith(".in-progress")]


def test_a_part_that_another_process_makes_at_the_same_time_is_not_emptied() -> None:
    """The attempt fails, and the next one takes another name."""
    fs = Late()
    fs.make_dirs(ROWS)
    with fs.open_write(f"{ROWS}/_part-0-0.in-progress") as file:
        file.write(b"theirs")
    with pytest.raises(StorageError, match="exists"):
        start(fs).process([1])
    assert fs.read_bytes(f"{ROWS}/_part-0-0.in-progress") == b"theirs"


def test_without_checkpoints_the_parts_of_a_job_that_has_ended_outlive_a_power_cut() -> None:
    """Their names, too: nothing comes afterwards that would make them durable."""
    fs = MemoryFileSystem()
    task = start(fs, checkpointing_enabled=False, batch_size_bytes=0)
    task.process([1, 2])
    task.finish()
    task.close()
    fs.crash()
    assert rows(fs) == ["1", "2"]
