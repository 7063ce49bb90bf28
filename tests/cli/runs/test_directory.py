"""Run directories: numbered, one for each run, and never another one's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.cli.runs.directory import claim_directory, next_run_directory, write_report
from engine.elements.errors import StorageError


def test_numbers_go_on_behind_the_highest(tmp_path: Path) -> None:
    """Deleting an old run frees no number; other files do not matter."""
    root = str(tmp_path)
    first, second = next_run_directory("job", root), next_run_directory("job", root)
    Path(first).rmdir()
    (tmp_path / "job/notes").touch()
    third = next_run_directory("job", root)

    assert [Path(one).name for one in (first, second, third)] == ["1", "2", "3"]
    assert (tmp_path / "job/latest").resolve() == Path(third)


def test_runs_that_start_together_get_different_directories(tmp_path: Path) -> None:
    """Creating the directory is what takes the number."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(next_run_directory("job", str(tmp_path)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(int(Path(one).name) for one in found) == list(range(1, 9))


def test_a_real_directory_called_latest_is_left_alone(tmp_path: Path) -> None:
    """The link is a convenience; nothing is deleted for it."""
    (tmp_path / "job/latest/mine").mkdir(parents=True)
    next_run_directory("job", str(tmp_path))

    assert sorted(one.name for one in (tmp_path / "job").iterdir()) == ["1", "latest"]
    assert (tmp_path / "job/latest/mine").is_dir()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """With its path and the reason."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        claim_directory(str(tmp_path / "file/x"))
    with pytest.raises(StorageError, match="cannot be written"):
        next_run_directory("file", str(tmp_path))
    with pytest.raises(StorageError, match="cannot be written"):
        write_report(str(tmp_path / "file/nowhere"), {})
