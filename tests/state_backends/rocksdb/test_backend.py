"""RocksDB as the state backend of a job: where it lives, and what it says when it cannot."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from state_backends.api import BackendEnvironment
from state_backends.base import STRING, KeyGroupRange, StateArgumentError, ValueStateDescriptor
from state_backends.files import LocalFileSystem, MemoryFileSystem
from state_backends.named import state_backend_named
from state_backends.rocksdb import RocksDBStateBackend
from state_backends.rocksdb.backend import TEMPORARY_PREFIX

VALUE = ValueStateDescriptor("value")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("rocksdict")
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def environment(file_system: LocalFileSystem | MemoryFileSystem, working_dir: str) -> BackendEnvironment:
    return BackendEnvironment(STRING, 128, KeyGroupRange(0, 127), file_system, working_dir, "unique")


def test_on_a_simulated_file_system_it_lives_in_a_temporary_directory(temporary: Path) -> None:
    """RocksDB needs a real one; nothing of it shows in the simulated file system, and it goes with the backend."""
    file_system = MemoryFileSystem()
    backend = RocksDBStateBackend().create_keyed_backend(environment(file_system, "/work"))
    backend.set_current_key("a")
    backend.value_state(VALUE).update(1)
    (directory,) = temporary.iterdir()
    assert directory.name.startswith(TEMPORARY_PREFIX)
    assert (directory / "store" / "CURRENT").exists()
    assert not list(file_system.walk_files("/"))
    backend.dispose()
    assert list(temporary.iterdir()) == []


def test_two_backends_have_two_directories(temporary: Path) -> None:
    """The same job in another run of the same process has the same names everywhere else."""
    backends = [RocksDBStateBackend().create_keyed_backend(environment(MemoryFileSystem(), "/work")) for _ in range(2)]
    for number, backend in enumerate(backends):
        backend.set_current_key("a")
        backend.value_state(VALUE).update(number)
    assert [backend.value_state(VALUE).get() for backend in backends] == [0, 1]
    for backend in backends:
        backend.dispose()


def test_on_the_real_file_system_it_lives_in_its_working_directory(temporary: Path, tmp_path: Path) -> None:
    """There is no other directory, and it is gone afterwards."""
    backend = RocksDBStateBackend().create_keyed_backend(environment(LocalFileSystem(), str(tmp_path / "work")))
    backend.set_current_key("a")
    backend.value_state(VALUE).update(1)
    assert (tmp_path / "work" / "store" / "CURRENT").exists()
    assert list(temporary.iterdir()) == []
    backend.dispose()
    assert not (tmp_path / "work").exists()


def test_without_the_package_the_error_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the backend is chosen, not in the middle of a run."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StateArgumentError, match=r"weirstream\[rocksdb\].*'lsm'"):
        state_backend_named("rocksdb")


def test_the_setting_by_name() -> None:
    """``rocksdb`` is known, with its default settings, incremental or not."""
    pytest.importorskip("rocksdict")
    for incremental in (False, True):
        backend = state_backend_named("rocksdb", incremental=incremental)
        assert backend == RocksDBStateBackend(incremental=incremental)
        assert (backend.name, backend.incremental) == ("rocksdb", incremental)


def test_settings_are_checked_when_the_backend_is_chosen() -> None:
    """Not when the first subtask starts."""
    pytest.importorskip("rocksdict")
    with pytest.raises(StateArgumentError, match="memtable_bytes"):
        RocksDBStateBackend(memtable_bytes=1)
