"""Local recovery of stores: their files are kept as they are, and what is shared stays shared after a restore."""

from __future__ import annotations

import io
from typing import BinaryIO

import pytest

from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.snapshots import (
    FileStateHandle,
    IncrementalKeyedStateHandle,
    SnapshotOptions,
    StreamStateHandle,
    run_to_completion,
)
from tests.state_backends.local.machine import Machine


def store_handle(machine: Machine, checkpoint_id: int) -> IncrementalKeyedStateHandle:
    handle = machine.completed[checkpoint_id][0].keyed
    assert isinstance(handle, IncrementalKeyedStateHandle)
    return handle


def local_bytes(machine: Machine, checkpoint_id: int) -> dict[str, bytes]:
    """The files that are kept of the store."""
    root = f"{machine.stores.root}/op-0/chk-{checkpoint_id}"
    return {
        path.rpartition("/")[2]: machine.fs.read_bytes(path)
        for path in machine.fs.walk_files(root)
        if "-store-" in path
    }


def test_the_files_of_a_store_are_kept() -> None:
    """Every file, old and new, lies in the local snapshot under its name, with the bytes that were uploaded."""
    machine = Machine("lsm", incremental=True)
    task = machine.start()
    task.run(1, *range(20))
    task.run(2, *range(20, 30))
    handle = store_handle(machine, 2)
    files = (*handle.shared_files, *handle.private_files)
    assert [file.uploaded for file in handle.shared_files].count(False) > 0
    kept = local_bytes(machine, 2)

    reader = machine.storage.reader(2)
    assert kept == {file.name: reader.open(file.stream).read() for file in files}
    assert local_bytes(machine, 1) == {}


def test_a_store_restores_from_its_kept_files() -> None:
    """Nothing is fetched, and the next checkpoint refers to the shared files of the primary copy."""
    machine = Machine("lsm", incremental=True)
    machine.start().run(1, *range(20))
    again = machine.start(1)
    assert again.values() == dict.fromkeys(range(20), "x")
    assert again.remote is not None
    assert again.remote.opened == []
    assert machine.told() == (1, 0, 0)
    again.run(2, 99)

    before, after = store_handle(machine, 1), store_handle(machine, 2)
    assert after.backend_id == before.backend_id
    old = {file.stream for file in before.shared_files}
    assert old
    assert old == {file.stream for file in after.shared_files if not file.uploaded}
    assert machine.start(2).values() == dict.fromkeys([*range(20), 99], "x")
    assert machine.told() == (2, 0, 0)


@pytest.mark.parametrize("data_file", [True, False])
def test_a_damaged_file_of_a_store_falls_back(data_file: bool) -> None:
    """The half restored store is closed, the primary restores, and the chain of checkpoints goes on."""
    machine = Machine("lsm", incremental=True)
    machine.start().run(1, *range(20))
    handle = store_handle(machine, 1)
    name = (handle.shared_files if data_file else handle.private_files)[0].name
    (path,) = [one for one in machine.local_files() if one.endswith(f"/{name}")]
    path = f"{machine.stores.root}/{path}"
    machine.fs.truncate(path, machine.fs.size(path) - 1)
    again = machine.start(1)

    assert again.values() == dict.fromkeys(range(20), "x")
    assert again.disposed == 1
    assert machine.told() == (0, 1, 1)
    again.run(2, 99)
    machine.fs.delete_tree("/s/job/work")
    assert machine.start(2).values() == dict.fromkeys([*range(20), 99], "x")
    assert machine.told() == (1, 1, 1)


def test_a_store_on_another_file_system_is_copied() -> None:
    """The local snapshot has the files, and the store's own directory is gone."""
    machine = Machine("lsm", incremental=True, local=MemoryFileSystem())
    task = machine.start()
    task.run(1, *range(20))

    assert any("-store-" in path for path in machine.local.walk_files(machine.stores.root))
    left = [path for path in machine.fs.walk_files("/s/job/work") if "snapshots" in path]
    assert left == []
    assert machine.start(1).values() == dict.fromkeys(range(20), "x")
    assert machine.told() == (1, 0, 0)


@pytest.mark.parametrize("operation", ["make_dirs", "open_write", "write", "rename"])
def test_files_that_cannot_be_kept_are_fetched(operation: str) -> None:
    """The checkpoint does not notice; what was half copied is gone; the failure is counted."""
    rule = FaultRule(FileFault.ERROR_BEFORE, operation, at_call=1)
    machine = Machine("lsm", incremental=True, local=FaultInjectingFileSystem(MemoryFileSystem(), [rule]))
    task = machine.start()
    task.run(1, *range(20))

    assert machine.counts.secondary_failures == 1
    assert not any("-store-" in path for path in machine.local_files())
    assert machine.start(1).values() == dict.fromkeys(range(20), "x")
    assert machine.told() == (0, 1, 1)


def test_a_meta_file_that_reads_back_damaged_is_not_kept() -> None:
    """The one stream that is no file of the store is read back from checkpoint storage, against its checksum."""
    machine = Machine("lsm", incremental=True)
    task = machine.start()
    task.put(*range(20))
    where = machine.storage.initialize_location(1)

    class Damaged:
        def open(self, handle: StreamStateHandle) -> BinaryIO:
            return io.BytesIO(where.reader().open(handle).read()[:-1] + b"?")

    local = task.recovery.snapshot(1, "u", Damaged())
    options = SnapshotOptions()
    strategy = task.keyed.snapshot_strategy(options)
    factory = local.streams("op", "keyed", where.stream_factory("u"), strategy)
    resources = strategy.sync_prepare_resources(1)
    result = run_to_completion(strategy.async_snapshot(resources, factory, options))

    assert result.job_manager_state is not None
    assert result.task_local_state is None
    assert machine.counts.secondary_failures == 1
    assert machine.local_files() == []


def test_full_snapshots_of_a_store_are_written_twice() -> None:
    """They are streams as those of any backend."""
    machine = Machine("lsm")
    task = machine.start()
    task.run(1, *range(20), value="x" * 5000)
    handle = machine.completed[1][0].keyed
    assert handle is not None
    (stream,) = handle.streams()
    assert isinstance(stream, FileStateHandle)
    again = machine.start(1)

    assert again.values() == dict.fromkeys(range(20), "x" * 5000)
    assert again.remote is not None
    assert again.remote.opened == []


@pytest.mark.parametrize("backend", ["heap", "changelog", "changelog:lsm"])
def test_other_incremental_snapshots_restore_right(backend: str) -> None:
    """Whichever part of them is at hand, the state is right, and the restore is counted one way or the other."""
    machine = Machine(backend, incremental=True)
    task = machine.start()
    for checkpoint_id in (1, 2, 3):
        task.run(checkpoint_id, checkpoint_id, checkpoint_id + 10)
    again = machine.start(3)

    assert again.values() == dict.fromkeys((1, 2, 3, 11, 12, 13), "x")
    assert sum(machine.told()[:2]) == 1
    assert machine.counts.secondary_failures == 0


def test_shared_files_of_a_heap_are_linked_over() -> None:
    """A heap's increment refers to older files; their copies come from the older local snapshot."""
    machine = Machine("heap", incremental=True)
    task = machine.start()
    task.run(1, *range(40), value="x" * 3000)
    task.run(2, 0, value="y")
    handle = machine.completed[2][0].keyed
    assert handle is not None
    assert any(not shared.is_new for shared in handle.shared())
    again = machine.start(2)

    assert again.values()[0] == "y"
    assert again.remote is not None
    assert again.remote.opened == []
    assert machine.told() == (1, 0, 0)
