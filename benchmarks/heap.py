"""The heap backend with a million keys: how long a snapshot holds up the job, and how much memory state takes.

Memory is the growth of the resident set (RSS) of a process of its own, one per measurement, because what an
interpreter has freed once it does not give back.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Result, below, now
from state_backends.base import LONG, KeyGroupRange, ValueStateDescriptor
from state_backends.files import LocalFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import CheckpointStorage, SnapshotOptions, run_to_completion

_MAX_PARALLELISM = 128
_BATCH = 4_096
_MIB = 1 << 20


def measure(quick: bool) -> list[Result]:
    """Synchronous part, asynchronous part, memory."""
    count, rounds = (100_000, 3) if quick else (1_000_000, 5)
    results = _snapshots(count, rounds)
    if Path("/proc/self/statm").exists():
        results.append(_memory(count, rounds))
    else:
        print("heap: no /proc on this machine, so memory is not measured", file=sys.stderr)
    return results


def filled_backend(count: int) -> HeapKeyedStateBackend:
    """A backend with ``count`` keys, each with an int as its value."""
    backend = HeapKeyedStateBackend(LONG, _MAX_PARALLELISM, KeyGroupRange(0, _MAX_PARALLELISM - 1))
    state = backend.value_state(ValueStateDescriptor("value"))
    for keys in _key_batches(count):
        state.update_many(keys, [key + count for key in keys])
    return backend


def filled_dict(count: int) -> dict[int, int]:
    """The same in a bare dict."""
    entries: dict[int, int] = {}
    for keys in _key_batches(count):
        entries.update(zip(keys, [key + count for key in keys], strict=True))
    return entries


def _key_batches(count: int) -> Iterator[list[int]]:
    for start in range(0, count, _BATCH):
        yield list(range(start, min(start + _BATCH, count)))


def _snapshots(count: int, rounds: int) -> list[Result]:
    backend = filled_backend(count)
    sync_ms, async_ns = [], []
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        storage = CheckpointStorage(LocalFileSystem(), directory, "heap")
        for checkpoint_id in range(1, rounds + 1):
            location = storage.initialize_location(checkpoint_id)
            start = now()
            resources = backend.sync_prepare_resources(checkpoint_id)
            pinned = now()
            factory = location.stream_factory(f"snapshot-{checkpoint_id}")
            task = backend.async_snapshot(resources, factory, SnapshotOptions())
            result = run_to_completion(task)
            done = now()
            assert result.job_manager_state is not None
            sync_ms.append(1e3 * (pinned - start))
            async_ns.append(1e9 * (done - pinned) / count)
            storage.discard(checkpoint_id)
    return [
        Result(f"snapshot of {count:,} keys, synchronous part", "ms", tuple(sync_ms), below(1.0)),
        Result(f"snapshot of {count:,} keys, written and synced", "ns per key", tuple(async_ns)),
    ]


def _memory(count: int, rounds: int) -> Result:
    bare = [_grown_in_own_process("filled_dict", count) for _ in range(rounds)]
    heap = [_grown_in_own_process("filled_backend", count) for _ in range(rounds)]
    more = tuple((own - ref) / _MIB for own, ref in zip(heap, bare, strict=True))
    details = {"dict_mib": round(sorted(bare)[rounds // 2] / _MIB), "heap_mib": round(sorted(heap)[rounds // 2] / _MIB)}
    return Result(f"memory of {count:,} int values over a dict's", "MiB (RSS)", more, below(100.0), details)


def _grown_in_own_process(builder: str, count: int) -> int:
    script = f"from benchmarks import heap; heap.print_growth(heap.{builder}, {count})"
    root = Path(__file__).resolve().parents[1]
    finished = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    return int(finished.stdout)


def print_growth(builder: object, count: int) -> None:
    """Print by how many bytes the process grows while ``builder(count)`` is made and kept."""
    assert callable(builder)
    before = _resident_bytes()
    kept = builder(count)
    print(_resident_bytes() - before)
    del kept


def _resident_bytes() -> int:
    import resource

    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()
