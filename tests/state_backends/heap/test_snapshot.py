"""Snapshots of the heap backend: isolated, canonical, released exactly once, restorable in parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    INT,
    STRING,
    KeyGroupRange,
    SnapshotCancelledError,
    StateArgumentError,
    StateSchemaError,
    StateSerializationError,
    ValueStateDescriptor,
    key_group_range_for_index,
)
from state_backends.base.key_groups import key_group_ranges
from state_backends.codec import StateCodec, TypeRegistry
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend, keyed_backend
from state_backends.snapshots import (
    CheckpointStorage,
    FullKeyedStateHandle,
    FullSnapshotReader,
    FullSnapshotTask,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotResult,
    SnapshotTask,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.differential.test_snapshots import fill
from tests.state_backends.support import (
    LIST,
    MAP,
    SUM,
    VALUE,
    heap,
    location,
    restored,
    snapshot_bytes,
    take_snapshot,
    vectors,
)

Vector = dict[str, Any]


def filled(entries: int = 40, **options: Any) -> HeapKeyedStateBackend:
    backend = heap(**options)
    fill(backend, entries)
    return backend


def start(backend: HeapKeyedStateBackend, where: Any, options: SnapshotOptions | None = None) -> FullSnapshotTask:
    resources = backend.sync_prepare_resources(1)
    return backend.async_snapshot(resources, where.stream_factory("s"), options or SnapshotOptions())


@pytest.mark.parametrize("vector", vectors("snapshot_isolation"))
def test_writes_after_the_sync_part_are_not_in_the_snapshot(vector: Vector) -> None:
    """The scenario of Flink's testAsyncSnapshot: live and restored values are as asserted there."""
    given_input, expect = vector["input"], vector["expect"]
    backend = heap(INT)
    state = backend.value_state(VALUE)

    def write(entries: dict[str, int]) -> None:
        state.update_many(list(map(int, entries)), list(entries.values()))

    def read(of: HeapKeyedStateBackend, keys: Any) -> dict[str, Any]:
        found = of.value_state(VALUE).get_many(list(map(int, keys)))
        return dict(zip(keys, found, strict=True))

    write(given_input["before"])
    where = location()
    task = start(backend, where)
    write(given_input["after_sync_part"])
    handle = run_to_completion(task).job_manager_state

    assert expect["live"] == read(backend, expect["live"])
    again = restored(handle, where.reader(), like=backend)
    assert expect["restored"] == read(again, expect["restored"])


@given(st.permutations(range(12)), st.permutations(["value", "sum", "list"]), st.booleans())
def test_equal_state_gives_equal_bytes_whatever_its_history(
    order: list[int], declared: list[str], detour: bool
) -> None:
    """The order of keys and of declarations, and entries that came and went, leave no trace in the bytes."""

    def build(keys: list[int], names: list[str]) -> HeapKeyedStateBackend:
        backend = heap()
        states = {"value": backend.value_state, "sum": backend.reducing_state, "list": backend.list_state}
        descriptors = {"value": VALUE, "sum": SUM, "list": LIST}
        for name in names:
            states[name](descriptors[name])  # type: ignore[operator]
        for key in keys:
            backend.set_current_key(key)
            backend.value_state(VALUE).update((key, "v"))
            backend.list_state(LIST).add(key)
            backend.map_state(MAP).put_all(dict.fromkeys(keys, 0))
            backend.timer_service("t").event_time.add(key, None, key // 3)
        return backend

    changed = build(order, declared)
    if detour:
        changed.value_state(ValueStateDescriptor("gone"))
        changed.sync_prepare_resources(1).release()
        changed.value_state(VALUE).update_many([77], [1])
        changed.value_state(VALUE).clear_many([77])

    assert snapshot_bytes(build(sorted(order), sorted(declared))) == snapshot_bytes(changed)


def test_the_format_is_pinned() -> None:
    """A small snapshot has exactly these bytes: a change of format needs a new version, not an accident."""
    backend = heap(STRING, max_parallelism=128)
    backend.reducing_state(SUM).add_many(["a", "b", "a"], [1, 2, 3], [])

    assert snapshot_bytes(backend).hex(" ") == (
        "57 45 49 52 46 55 4c 4c 00 01 58 68 98 2a "  # WEIRFULL, version 1, crc
        "01 00 00 00 00 00 24 b9 98 fc fc "  # header frame of 36 bytes
        "95 92 a6 53 54 52 49 4e 47 90 cc 80 92 00 7f 91 93 a3 73 75 6d c2 a8 72 65 64 75 63 69 6e 67 "
        "a4 6e 6f 6e 65 "  # STRING, 128, [0, 127], [[sum, false, reducing]], none
        "02 00 16 00 00 00 09 62 f3 de 2f 91 94 00 91 a1 62 c0 91 02 "  # key group 22: b = 2
        "02 00 51 00 00 00 09 bd 51 89 c5 91 94 00 91 a1 61 c0 91 04 "  # key group 81: a = 4
        "03 00 00 00 00 00 03 38 a7 13 ab 92 02 02"  # end: 2 groups, 2 entries
    )


class Hooks:
    def __init__(self) -> None:
        self.order: list[str] = []


class RecordedTask(SnapshotTask[KeyedStateHandle]):
    """A snapshot task whose body, cancellation and clean-up are recorded."""

    def __init__(self, hooks: Hooks, fail: bool) -> None:
        from state_backends.snapshots import SnapshotResources

        class Resources(SnapshotResources):
            def _release(self) -> None:
                hooks.order.append("cleanup")

        super().__init__(Resources())
        self.hooks = hooks
        self.fail = fail
        self.steps = 0

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        if self.steps == 0:
            self.hooks.order.append("call")
        self.steps += 1
        if self.fail:
            raise OSError("disk")
        return None if self.steps == 1 else SnapshotResult(None)

    def _discard(self) -> None:
        self.hooks.order.append("discard")


@pytest.mark.parametrize("vector", vectors("async_snapshot_lifecycle"))
def test_the_life_cycle_of_a_snapshot_task(vector: Vector) -> None:
    """Result, order of hooks and the single release are those of Flink's AsyncSnapshotCallable."""
    events, expect = vector["input"]["events"], vector["expect"]
    hooks = Hooks()
    task = RecordedTask(hooks, fail="run_with_io_exception" in events)
    outcome = "success"
    try:
        for event in events:
            if event == "cancel":
                task.cancel()
            elif "cancel" in events and events.index("cancel") > 0:
                task.step()
            else:
                run_to_completion(task)
        if task.status is SnapshotStatus.CANCELLED:
            task.step()
    except SnapshotCancelledError:
        outcome = "cancelled"
    except OSError:
        outcome = "io_exception"

    assert expect["result"] == outcome
    assert expect["sync_resources_released_times"] == hooks.order.count("cleanup") == 1
    # Theirs also records a log call on success and calls cancel what deletes partial output here.
    theirs = ["discard" if one == "cancel" else one for one in expect["invocation_order"] if one != "log"]
    assert theirs == [one for one in hooks.order if one != "discard" or "cancel" in events]


def test_releasing_resources_twice_is_a_bug() -> None:
    """A second release is caught: it would unpin what another snapshot may rely on."""
    resources = heap().sync_prepare_resources(1)
    resources.release()
    with pytest.raises(AssertionError, match="released twice"):
        resources.release()


@pytest.mark.parametrize("path", ["success", "failure", "cancel running", "cancel before start", "cancel after"])
def test_resources_are_released_exactly_once(path: str) -> None:
    """On every path the view is unpinned once, and no file is left unless the snapshot succeeded."""
    fail = path == "failure"
    rules = [FaultRule(FileFault.DISK_FULL, "write", at_call=3)] if fail else []
    fs = FaultInjectingFileSystem(MemoryFileSystem(), rules)
    where = CheckpointStorage(fs, "/s", "j", inline_threshold_bytes=0).initialize_location(1)
    backend = filled()
    resources = backend.sync_prepare_resources(1)
    released: list[int] = []
    real_release = resources._release
    resources._release = lambda: released.append(1) or real_release()  # type: ignore[func-returns-value,method-assign]
    task = backend.async_snapshot(resources, where.stream_factory("s"), SnapshotOptions(entries_per_step=1))
    if path == "failure":
        with pytest.raises(OSError, match="No space left"):
            run_to_completion(task)
    elif path == "cancel running":
        assert task.step() is None
        task.cancel()
    elif path == "cancel before start":
        task.cancel()
    else:
        run_to_completion(task)
    task.cancel()

    assert released == [1]
    assert all(part.entries.stale == 0 for part in _tables(backend))
    assert len(list(fs.inner.walk_files("/s"))) == (1 if path in ("success", "cancel after") else 0)


def _tables(backend: HeapKeyedStateBackend) -> Any:
    class Part:
        def __init__(self, entries: Any) -> None:
            self.entries = entries

    return [Part(entries) for table in backend._tables.values() for _, entries in table.parts()]


def test_a_failed_deletion_does_not_hide_why_the_snapshot_failed() -> None:
    """When the partial file cannot be deleted either, the first error is raised, with a note, and released."""
    rules = [FaultRule(FileFault.DISK_FULL, "write", at_call=2), FaultRule(FileFault.ERROR_BEFORE, "delete")]
    fs = FaultInjectingFileSystem(MemoryFileSystem(), rules)
    where = CheckpointStorage(fs, "/s", "j", inline_threshold_bytes=0).initialize_location(1)
    backend = filled()
    resources = backend.sync_prepare_resources(1)
    task = backend.async_snapshot(resources, where.stream_factory("s"), SnapshotOptions())
    with pytest.raises(OSError, match="No space left") as info:
        run_to_completion(task)

    assert any("could not be deleted" in note for note in info.value.__notes__)
    assert resources.released


def test_steps_after_the_end_are_refused() -> None:
    """A cancelled task raises, a finished one is not stepped again."""
    cancelled = start(filled(), location())
    cancelled.cancel()
    with pytest.raises(SnapshotCancelledError):
        cancelled.step()
    finished = start(filled(), location())
    run_to_completion(finished)
    with pytest.raises(AssertionError, match="step of a completed snapshot"):
        finished.step()


@pytest.mark.parametrize("touched", [False, True])
def test_a_value_that_cannot_be_written_fails_the_snapshot_and_names_it(touched: bool) -> None:
    """The error names state, key and path; the running backend is not disturbed."""
    backend = heap()
    backend.set_current_key(3)
    backend.value_state(VALUE).update({"a": [0, {1, 2}]})
    task = start(backend, location())
    if touched:
        backend.value_state(VALUE).update("fine")
    with pytest.raises(StateSerializationError, match=r"value of state 'value' under 3\['a'\]\[1\] cannot be"):
        run_to_completion(task)

    assert task.status is SnapshotStatus.FAILED
    if touched:
        assert backend.value_state(VALUE).get() == "fine"


@pytest.mark.parametrize("vector", vectors("keyed_state_redistribution"))
def test_handles_are_cut_to_the_new_ranges(vector: Vector) -> None:
    """Which handle, cut to which key groups, each new subtask gets is as in Flink."""
    given_input, maximum = vector["input"], vector["input"]["max_parallelism"]
    old = [
        FullKeyedStateHandle(one, tuple((group, group * 10) for group in one), None)  # type: ignore[arg-type]
        for one in key_group_ranges(maximum, given_input["old_parallelism"])
    ]
    for index, expected in enumerate(vector["expect"]["handles_per_new_subtask"]):
        groups = key_group_range_for_index(maximum, given_input["new_parallelism"], index)
        found = [(i, cut) for i, handle in enumerate(old) if (cut := handle.intersect(groups)) is not None]
        assert [(one["old"], KeyGroupRange(*one["trimmed"])) for one in expected] == [
            (i, cut.key_group_range) for i, cut in found
        ]
        assert all([group for group, _ in cut.offsets] == list(cut.key_group_range) for _, cut in found)


def test_a_partial_restore_reads_only_its_key_groups() -> None:
    """Restoring a few key groups reads the header and those frames, not the whole file."""
    backend = heap(max_parallelism=64)
    backend.reducing_state(SUM).add_many(list(range(5000)), [1] * 5000, [])
    handle, reader = take_snapshot(backend)
    assert handle is not None
    cut = handle.intersect(KeyGroupRange(10, 11))
    assert cut is not None
    read = 0
    with reader.open(cut.stream) as file:
        real_read = file.read

        def counted(size: int = -1) -> bytes:
            nonlocal read
            data = real_read(size)
            read += len(data)
            return data

        file.read = counted  # type: ignore[method-assign]
        blocks = list(FullSnapshotReader(file, cut, StateCodec()).blocks(KeyGroupRange(0, 63)))

    assert {block.key_group for block in blocks} == {10, 11}
    assert read < handle.size_bytes / 10


def test_compressed_snapshots_are_smaller_and_equal() -> None:
    """zlib snapshots restore to the same state; an unknown compression is refused."""
    backend = filled(400)
    handle, reader = take_snapshot(backend, SnapshotOptions(compression="zlib"))
    assert handle is not None

    assert restored(handle, reader, like=backend).fingerprint() == backend.fingerprint()
    assert handle.size_bytes < len(snapshot_bytes(backend)) / 2
    with pytest.raises(StateArgumentError, match="'brotli' is none of none, zlib"):
        SnapshotOptions(compression="brotli")


def test_the_cache_of_keys_overflows_while_snapshots_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys are remembered; all find their entries again, and the snapshot keeps what it pinned."""
    monkeypatch.setattr(keyed_backend, "KEY_CACHE_ENTRIES", 4)
    backend, keys = heap(), list(range(50))
    state = backend.value_state(VALUE)
    state.update_many(keys, keys)
    where = location()
    task = start(backend, where)
    for key in keys[::-1]:
        backend.set_current_key(key)
        state.update(key + 100)
        assert len(backend._tables[VALUE.name].plain.shard_of) <= 4
    before = restored(run_to_completion(task).job_manager_state, where.reader(), like=backend)

    assert state.get_many(keys) == [key + 100 for key in keys]
    assert before.value_state(VALUE).get_many(keys) == keys


def test_registered_types_are_restored() -> None:
    """Values and namespaces of registered classes come back as those classes."""

    class Money:
        def __init__(self, cents: int) -> None:
            self.cents = cents

    registry = TypeRegistry()
    registry.register_type(32, Money, lambda money: money.cents, lambda cents, version: Money(cents))
    codec = StateCodec(registry)
    backend = heap(codec=codec)
    backend.set_current_key(1)
    backend.value_state(VALUE).update(Money(150))
    handle, reader = take_snapshot(backend)
    assert handle is not None
    again = heap(codec=codec)
    again.restore([handle], reader)
    again.set_current_key(1)

    assert again.value_state(VALUE).get().cents == 150
    with pytest.raises(StateSchemaError, match="type code 32"):
        heap().restore([handle], reader)
