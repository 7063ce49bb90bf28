"""A storage directory: one run at a time, a new incarnation for each, and only its own leftovers deleted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.elements.errors import StorageError
from engine.runtime.storage import open_storage
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, LocalFileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointMetadata

ROOT = Path(__file__).resolve().parents[3]


def test_every_start_is_a_new_incarnation() -> None:
    """The number grows with each start, and is durable before the directory is handed out."""
    files = MemoryFileSystem()

    for expected in (1, 2, 3):
        with open_storage("/s", "job", file_system=files) as opened:
            files.crash()
            assert opened.incarnation == opened.storage.incarnation() == expected


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """A second run on the same directory gets an error, another job beside it does not."""
    with open_storage(str(tmp_path), "job"):
        with pytest.raises(StorageError, match="in use"), open_storage(str(tmp_path), "job"):
            pytest.fail("the directory was handed out twice")
        with open_storage(str(tmp_path), "other") as other:
            assert other.incarnation == 1


def test_the_lock_ends_with_the_run(tmp_path: Path) -> None:
    """After a run, failed or not, the directory can be opened again."""
    with pytest.raises(RuntimeError), open_storage(str(tmp_path), "job"):
        raise RuntimeError("the run failed")

    with open_storage(str(tmp_path), "job") as opened:
        assert opened.incarnation == 2


HOLDER = """
import sys
from engine.runtime.storage import open_storage
with open_storage(sys.argv[1], "job"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_holds_between_processes_and_dies_with_its_holder(tmp_path: Path) -> None:
    """Another process is kept out while the holder lives; after the holder is killed, the directory is free."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StorageError, match="in use"), open_storage(str(tmp_path), "job"):
            pytest.fail("the directory was handed out twice")
        holder.kill()
        holder.wait()

    with open_storage(str(tmp_path), "job") as opened:
        assert opened.incarnation == 2


def test_leftovers_of_a_crash_are_deleted_and_checkpoints_are_not() -> None:
    """A directory without metadata is no checkpoint and is deleted; one with metadata stays."""
    files = MemoryFileSystem()
    with open_storage("/s", "job", file_system=files) as opened:
        whole = opened.storage.initialize_location(1)
        whole.write_metadata(CheckpointMetadata(1, 0, opened.incarnation))
        half = opened.storage.initialize_location(2)
        with files.open_write(f"{half.directory}/state") as file:
            file.write(b"half")

    with open_storage("/s", "job", file_system=files) as opened:
        assert any("chk-2" in leftover for leftover in opened.leftovers)
        assert opened.storage.list_checkpoints() == [1]
        assert not files.exists(half.directory)


def test_a_directory_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """The error names the directory and the remedy."""
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")

    with pytest.raises(StorageError, match="cannot be"), open_storage(str(blocked), "job"):
        pytest.fail("a file was taken for a directory")


@pytest.mark.parametrize("call", range(1, 12))
@pytest.mark.parametrize("kind", [FileFault.ERROR_BEFORE, FileFault.DISK_FULL, FileFault.READ_ONLY])
def test_every_failing_step_of_the_start_is_a_clear_error(call: int, kind: FileFault) -> None:
    """Whichever step fails, the run does not start, the error says why, and the directory is free again."""
    inner = MemoryFileSystem()
    files = FaultInjectingFileSystem(inner, [FaultRule(kind, at_call=call)])
    told = ""
    try:
        with open_storage("/s", "job", file_system=files):
            pass
    except StorageError as error:
        told = str(error)

    assert bool(told) is bool(files.struck)
    if told:
        assert "/s/job" in told
        assert "check the disk" in told or "Choose a directory" in told
    with open_storage("/s", "job", file_system=inner) as opened:
        assert opened.incarnation in (1, 2)


def test_real_directories_work_like_those_in_memory(tmp_path: Path) -> None:
    """On a real disk the incarnation survives as well."""
    for expected in (1, 2):
        with open_storage(str(tmp_path), "job", file_system=LocalFileSystem()) as opened:
            assert opened.incarnation == expected
