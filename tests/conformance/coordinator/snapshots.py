"""Snapshots: the life of the asynchronous part, and the order of entries in a full snapshot."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from state_backends.base import INT, LONG, KeyGroupRange, SnapshotCancelledError, StateKind, ValueStateDescriptor
from state_backends.codec import default_codec
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import (
    CheckpointStorage,
    CheckpointStream,
    DecodedBlock,
    FullSnapshotReader,
    SnapshotOptions,
    SnapshotResources,
    StateId,
    StateScope,
    StreamFactory,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.coordinator.states import keyed_snapshot, location

# --- the life of a snapshot -------------------------------------------------------------------------------------------

_STARTS = ("run", "run_with_io_exception")
# A backend that is closed cancels the snapshots that are under way.
_STOPS = ("cancel", "close_owner_registry")


class _WatchedStreams:
    """A stream factory that knows which of its streams are still open."""

    def __init__(self, factory: StreamFactory, order: list[str]) -> None:
        self._factory = factory
        self._order = order
        self.open: list[CheckpointStream] = []

    def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
        """A stream of the wrapped factory; its creation is the beginning of the work."""
        self._order.append("call")
        stream = self._factory.create_stream(scope)
        self.open.append(stream)
        finish, close = stream.close_and_get_handle, stream.close

        def finished() -> Any:
            handle = finish()
            self.open.remove(stream)
            return handle

        def closed() -> None:
            close()
            if stream in self.open:
                self.open.remove(stream)

        vars(stream).update(close_and_get_handle=finished, close=closed)
        return stream


class _Life:
    """A real snapshot of several steps, and the order in which its hooks were called."""

    def __init__(self, *, fails: bool) -> None:
        # The first write creates the file, the third one is in the middle of the work.
        rules = [FaultRule(FileFault.DISK_FULL, "write", at_call=2)] if fails else []
        fs = FaultInjectingFileSystem(MemoryFileSystem(), rules)
        where = CheckpointStorage(fs, "/storage", "job", inline_threshold_bytes=0).initialize_location(1)
        backend = HeapKeyedStateBackend(INT, 8, KeyGroupRange(0, 7))
        backend.value_state(ValueStateDescriptor("state")).update_many(list(range(40)), list(range(40)))
        self.order: list[str] = []
        self.released = 0
        self.streams = _WatchedStreams(where.stream_factory("keyed"), self.order)
        resources = backend.sync_prepare_resources(1)
        self._watch(resources)
        self.task = backend.async_snapshot(resources, self.streams, SnapshotOptions(entries_per_step=1))

    def _watch(self, resources: SnapshotResources) -> None:
        release = resources.release

        def released() -> None:
            # What has happened before the pinned view is released.
            if self.task.status is SnapshotStatus.COMPLETED:
                self.order.append("log")
            elif self.task.status is SnapshotStatus.CANCELLED and not self.streams.open:
                self.order.append("cancel")
            self.order.append("cleanup")
            self.released += 1
            release()

        vars(resources).update(release=released)

    def run(self, events: list[str]) -> str:
        result = "success"
        for position, event in enumerate(events):
            try:
                if event in _STOPS:
                    self.task.cancel()
                elif any(later in _STOPS for later in events[position:]):
                    self.task.step()
                else:
                    run_to_completion(self.task)
            except OSError:
                result = "io_exception"
            except SnapshotCancelledError:
                result = "cancelled"
        return "cancelled" if self.task.status is SnapshotStatus.CANCELLED else result


def async_snapshot_lifecycle(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"events"}, "input")
    for event in given["events"]:
        if event not in (*_STARTS, *_STOPS):
            raise MalformedVector(f"unknown event {event!r}")
    life = _Life(fails="run_with_io_exception" in given["events"])
    observed = {
        "result": life.run(given["events"]),
        "invocation_order": life.order,
        "sync_resources_released_times": life.released,
        "registered_closeables_left_in_owner": len(life.streams.open),
    }
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


# --- the order in a full snapshot -------------------------------------------------------------------------------------


def _as_keys(texts: set[str]) -> dict[str, int]:
    """For each text a number above 0; their encodings sort like the bytes of the texts."""
    return {text: rank for rank, text in enumerate(sorted(texts, key=str.encode), start=1)}


def full_snapshot_merge_order(vector: Vector) -> list[str]:
    """``full_snapshot_merge_order``: written by the heap backend, read back block by block."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"states"}, "input")
    check_fields(vector["expect"], {"entries"}, "expect")
    keys = _as_keys({text for state in given["states"] for _, text in state})
    texts = {key: text for text, key in keys.items()}
    highest = max((group for state in given["states"] for group, _ in state), default=0)
    maximum = 128 if highest < 128 else 1 << 15
    backend = HeapKeyedStateBackend(LONG, maximum, KeyGroupRange(0, maximum - 1))
    for number, state in enumerate(given["states"]):
        _fill(backend, f"state {number:05}", [(group, keys[text]) for group, text in state])
    entries = [
        {"key_group": group, "state_id": number, "key": texts[key]} for group, number, key in _read_back(backend)
    ]
    for entry, before in zip(entries, [None, *entries], strict=False):
        entry["new_key_group"] = before is None or before["key_group"] != entry["key_group"]
        entry["new_state"] = before is None or before["state_id"] != entry["state_id"]
    comparison.field("entries", vector["expect"]["entries"], entries)
    return comparison.finish()


def _fill(backend: HeapKeyedStateBackend, name: str, entries: list[tuple[int, int]]) -> None:
    backend.value_state(ValueStateDescriptor(name))
    state = StateId(name, False, StateKind.VALUE.value)
    for group, key in entries:
        # As restored: the vector says which group a key is in.
        block = DecodedBlock(group, state, [key], None, [True])
        backend._table(name, StateKind.VALUE).load(block)


def _read_back(backend: HeapKeyedStateBackend) -> list[tuple[int, int, int]]:
    where = location()
    handle = run_to_completion(keyed_snapshot(backend, where)).job_manager_state
    if handle is None:
        return []
    found = []
    with where.reader().open(handle.stream) as file:
        for block in FullSnapshotReader(file, handle, default_codec()).blocks(handle.key_group_range):
            number = int(block.state.name.removeprefix("state "))
            found += [(block.key_group, number, key) for key in block.keys]
    offsets = [group for group, _ in handle.offsets]
    assert offsets == [group for group, _ in dict.fromkeys((one[0], None) for one in found)], offsets
    assert all(before <= after for before, after in pairwise(offsets))
    return found


KINDS = {"async_snapshot_lifecycle": async_snapshot_lifecycle, "full_snapshot_merge_order": full_snapshot_merge_order}
