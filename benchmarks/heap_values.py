"""The heap backend with a million keys of 16 bytes and values of 100: writing, snapshots in full, restoring.

Each beside the plainest program that does the same: a dict of key groups for writes, ``msgpack.packb`` of the whole
dict for a snapshot (which sorts nothing, knows no key groups and writes to no disk).
"""

from __future__ import annotations

import os
import random
from tempfile import TemporaryDirectory

import msgpack

from benchmarks.measure import Result, at_least, below, interleaved, now
from state_backends.base import BYTES, KeyGroupRange, ValueStateDescriptor, key_group_function
from state_backends.files import LocalFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import CheckpointStorage, SnapshotOptions, run_to_completion

_MAX_PARALLELISM = 128
_EVERYTHING = KeyGroupRange(0, _MAX_PARALLELISM - 1)
_BATCH = 1_024
_VALUE = ValueStateDescriptor("value")


def measure(quick: bool) -> list[Result]:
    """Writes, full snapshot, restore."""
    count, rounds = (50_000, 2) if quick else (1_000_000, 5)
    drawn = random.Random(7)
    keys = [drawn.randbytes(16) for _ in range(count)]
    values = [drawn.randbytes(100) for _ in range(count)]
    backend = HeapKeyedStateBackend(BYTES, _MAX_PARALLELISM, _EVERYTHING)
    backend.value_state(_VALUE).update_many(keys, values)
    return [_writes(backend, keys, values, rounds), *_snapshot_and_restore(backend, keys, values, rounds)]


def _writes(backend: HeapKeyedStateBackend, keys: list[bytes], values: list[bytes], rounds: int) -> Result:
    """Overwrites in random order, in batches: the state's key groups are known, as those of a running job are."""
    order = random.Random(8).sample(range(len(keys)), len(keys) // 2)
    chosen, new = [keys[one] for one in order], [values[one] for one in order]
    batches = [(chosen[start : start + _BATCH], new[start : start + _BATCH]) for start in range(0, len(order), _BATCH)]
    state = backend.value_state(_VALUE)
    find = key_group_function(BYTES, _MAX_PARALLELISM)
    group_of = {key: find(key) for key in keys}
    groups: list[dict[bytes, bytes]] = [{} for _ in range(_MAX_PARALLELISM)]
    for key, value in zip(keys, values, strict=True):
        groups[group_of[key]][key] = value

    def plain() -> float:
        start = now()
        for some, with_values in batches:
            for key, value in zip(some, with_values, strict=True):
                groups[group_of[key]][key] = value
        return now() - start

    def heap() -> float:
        start = now()
        for some, with_values in batches:
            state.update_many(some, with_values)
        return now() - start

    paired = interleaved(plain, {"heap": heap}, rounds)["heap"]
    cost = tuple(own / ref for own, ref in zip(paired.seconds, paired.reference_seconds, strict=True))
    return Result(f"heap: {len(order):,} writes of 100 B", "x time of a dict of key groups", cost, below(1.3))


def _snapshot_and_restore(
    backend: HeapKeyedStateBackend, keys: list[bytes], values: list[bytes], rounds: int
) -> list[Result]:
    entries = dict(zip(keys, values, strict=True))
    written_s: list[float] = []
    restored_s: list[float] = []

    def packed() -> float:
        start = now()
        msgpack.packb(entries)
        return now() - start

    with TemporaryDirectory(prefix="weir-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        storage = CheckpointStorage(LocalFileSystem(), directory, "heap")
        numbers = iter(range(1, 10 * rounds))

        def snapshot() -> float:
            number = next(numbers)
            location = storage.initialize_location(number)
            start = now()
            resources = backend.sync_prepare_resources(number)
            task = backend.async_snapshot(resources, location.stream_factory("s"), SnapshotOptions())
            handle = run_to_completion(task).job_manager_state
            written_s.append(now() - start)
            assert handle is not None
            start = now()
            again = HeapKeyedStateBackend(BYTES, _MAX_PARALLELISM, _EVERYTHING)
            again.restore([handle], location.reader())
            restored_s.append(now() - start)
            assert again.num_entries() == len(keys)
            storage.discard(number)
            return written_s[-1]

        paired = interleaved(packed, {"snapshot": snapshot}, rounds)["snapshot"]
    count = f"{len(keys):,} x 100 B"
    return [
        Result(
            f"heap: full snapshot of {count}, sorted, written",
            "x speed of msgpack.packb of the dict",
            paired.speed_ratios,
            at_least(0.15),
        ),
        Result(f"heap: full snapshot of {count}", "s", tuple(written_s)),
        Result(f"heap: restore of {count}", "s", tuple(restored_s), below(2.0)),
    ]
