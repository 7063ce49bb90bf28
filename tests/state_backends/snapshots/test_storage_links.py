"""Things in a storage directory that are called like a checkpoint and are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from state_backends.base import CorruptStateError, MissingStateError
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """The directory of a job, and beside it a foreign one with a file in it."""
    (tmp_path / "base/job").mkdir(parents=True)
    (tmp_path / "others").mkdir()
    (tmp_path / "others/precious").write_text("precious")
    return tmp_path / "base/job"


def storage_of(job_dir: Path) -> CheckpointStorage:
    return CheckpointStorage(LocalFileSystem(), str(job_dir.parent), job_dir.name)


@pytest.mark.parametrize("target", ["../../others", "/nowhere", "chk-7", "../../others/precious"])
def test_a_link_called_like_a_checkpoint_is_none(job_dir: Path, target: str) -> None:
    """To a directory, to nothing, to itself, to a file: it holds no metadata, and sweeping spares it."""
    (job_dir / "chk-7").symlink_to(target)
    storage = storage_of(job_dir)

    with pytest.raises((MissingStateError, CorruptStateError)):
        storage.location(7).read_metadata()
    assert storage.next_checkpoint_id() > 7
    storage.discard_leftovers()
    assert (job_dir.parent.parent / "others/precious").read_text() == "precious"


def test_a_linked_checkpoint_is_discarded_as_a_link(job_dir: Path) -> None:
    """Deleting it takes the link away, and leaves what it leads to."""
    (job_dir / "chk-7").symlink_to("../../others")
    LocalFileSystem().delete_tree(str(job_dir / "chk-7"))

    assert not os.path.lexists(job_dir / "chk-7")
    assert (job_dir.parent.parent / "others/precious").exists()


def test_metadata_that_is_a_directory_is_damage(job_dir: Path) -> None:
    """An older checkpoint is used instead."""
    (job_dir / "chk-7/_metadata").mkdir(parents=True)

    with pytest.raises(CorruptStateError, match="is no file"):
        storage_of(job_dir).location(7).read_metadata()
