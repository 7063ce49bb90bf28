"""The log-structured store beside the real RocksDB and a plain dict: a million keys of 16 bytes, values of 100 bytes.

Every number about speed is a ratio within one run, the three programs in turns. RocksDB (``rocksdict``) runs as Flink
sets it up, without its log, with memtables as large as ours. Its compactions run in threads of their own, which ours
does not have: reading is measured when they have come to rest, writing includes ours but only part of theirs.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from benchmarks.measure import Paired, Result, at_least, below, interleaved, now, per_second
from state_backends.files import LocalFileSystem
from state_backends.lsm import LsmOptions, LsmStore, LsmStoreKind

_MIB = 1 << 20
_MEMTABLE_BYTES = 4 * _MIB
_VALUE_BYTES = 100
_DECODED_ENTRY_BYTES = 230
_PACKED_ENTRY_BYTES = 122
_UPDATED = 0.01
_CHECKPOINTS = 10


def measure(quick: bool) -> list[Result]:
    """Writing, reading, checkpoints, and memory."""
    count, rounds = (100_000, 1) if quick else (1_000_000, 3)
    entries = _Entries(count)
    try:
        import rocksdict
    except ImportError:
        print("lsm: rocksdict is not installed, so there is nothing to compare with", file=sys.stderr)
        return [_puts_alone(entries)]
    results = [_puts(entries, rocksdict, rounds)]
    results += _reads(entries, rocksdict, rounds)
    results += _checkpoints(entries, rocksdict)
    if Path("/proc/self/statm").exists():
        results += _memory(count)
    return results


class _Entries:
    """Keys of a key group and 14 random bytes, incompressible values, and keys that are not there."""

    def __init__(self, count: int) -> None:
        source = random.Random(7)
        blob = source.randbytes(_MIB + _VALUE_BYTES)
        starts = [source.randrange(_MIB) for _ in range(count)]
        self.keys = [(number % 128).to_bytes(2, "big") + source.randbytes(14) for number in range(count)]
        self.values = [blob[start : start + _VALUE_BYTES] for start in starts]
        self.wanted = source.sample(self.keys, min(count, 100_000))
        self.absent = [key[:2] + source.randbytes(14) for key in self.wanted]
        self._source = source

    def updates(self) -> list[int]:
        """Which entries change until the next checkpoint."""
        count = len(self.keys)
        return self._source.sample(range(count), round(count * _UPDATED))


# --- the two stores ---


@contextmanager
def _lsm(**options: Any) -> Iterator[LsmStore]:
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        settings = LsmOptions(memtable_bytes=_MEMTABLE_BYTES, **options)
        store = LsmStoreKind(settings).open(LocalFileSystem(), f"{directory}/lsm", "bench")
        try:
            yield store
        finally:
            store.close()


class _Rocks:
    """RocksDB with the settings that Flink gives it, but for the smaller memtable."""

    def __init__(self, rocksdict: Any, directory: str) -> None:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_MEMTABLE_BYTES)
        options.set_target_file_size_base(_MEMTABLE_BYTES)
        options.set_max_bytes_for_level_base(4 * _MEMTABLE_BYTES)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.db = rocksdict.Rdict(directory, options)
        writing = rocksdict.WriteOptions()
        writing.disable_wal = True
        self.db.set_write_options(writing)
        self._checkpoint = rocksdict.Checkpoint

    def settle(self) -> None:
        """Wait until no compaction runs."""
        quiet = 0
        while quiet < 3:
            sleep(0.05)
            running = ("rocksdb.num-running-compactions", "rocksdb.num-running-flushes")
            quiet = 0 if any(int(self.db.property_value(name)) for name in running) else quiet + 1

    def checkpoint(self, directory: str) -> None:
        """A directory of hard links."""
        self._checkpoint(self.db).create_checkpoint(directory)


@contextmanager
def _rocks(rocksdict: Any) -> Iterator[_Rocks]:
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        store = _Rocks(rocksdict, f"{directory}/rocks")
        try:
            yield store
        finally:
            store.db.close()


# --- writing ---


def _load(put: Callable[[bytes, bytes], Any], entries: _Entries) -> float:
    start = now()
    for key, value in zip(entries.keys, entries.values, strict=True):
        put(key, value)
    return now() - start


def _puts(entries: _Entries, rocksdict: Any, rounds: int) -> Result:
    def of_rocks() -> float:
        with _rocks(rocksdict) as rocks:
            return _load(rocks.db.__setitem__, entries)

    def of_lsm() -> float:
        with _lsm() as store:
            return _load(store.put, entries)

    def of_dict() -> float:
        plain: dict[bytes, bytes] = {}
        return _load(plain.__setitem__, entries)

    paired = interleaved(of_rocks, {"lsm": of_lsm, "dict": of_dict}, rounds)
    return _ratio(f"put {len(entries.keys):,} entries, merging included", paired, len(entries.keys), at_least(0.6))


def _ratio(case: str, paired: dict[str, Paired], count: int, goal: Any) -> Result:
    own = paired["lsm"]
    details = {"lsm_per_s": per_second(count, own.seconds), "rocksdb_per_s": per_second(count, own.reference_seconds)}
    if "dict" in paired:
        details["dict_per_s"] = per_second(count, paired["dict"].seconds)
    return Result(case, "x RocksDB", own.speed_ratios, goal, details)


# --- reading ---


def _gets(get: Callable[[bytes], Any], keys: Sequence[bytes], present: bool) -> float:
    start = now()
    found = sum([get(key) is not None for key in keys])
    seconds = now() - start
    assert found == (len(keys) if present else 0), found
    return seconds


def _rows(scan: Callable[[], Any], count: int) -> float:
    start = now()
    found = sum(1 for _ in scan())
    seconds = now() - start
    assert found == count, (found, count)
    return seconds


def _reads(entries: _Entries, rocksdict: Any, rounds: int) -> list[Result]:
    count, wanted = len(entries.keys), entries.wanted
    everything = count * _DECODED_ENTRY_BYTES
    plain = dict(zip(entries.keys, entries.values, strict=True))
    warm_bytes, cold_bytes = 2 * everything, 2 * count * _PACKED_ENTRY_BYTES // 4
    with _rocks(rocksdict) as rocks, _lsm(cache_bytes=warm_bytes) as store, _lsm(cache_bytes=cold_bytes) as cold:
        _load(rocks.db.__setitem__, entries)
        _load(store.put, entries)
        _load(cold.put, entries)
        rocks.settle()
        for key in entries.keys:
            store.get(key)
        trials: list[tuple[str, float, dict[str, Callable[[], float]]]] = [
            ("get, every block in the cache", 0.8, {
                "rocks": lambda: _gets(rocks.db.get, wanted, True),
                "lsm": lambda: _gets(store.get, wanted, True),
                "dict": lambda: _gets(plain.get, wanted, True),
            }),
            ("get, a quarter of all blocks in the cache", 0.6, {
                "rocks": lambda: _gets(rocks.db.get, wanted, True),
                "lsm": lambda: _gets(cold.get, wanted, True),
            }),
            ("get of keys that are not there", 0.3, {
                "rocks": lambda: _gets(rocks.db.get, entries.absent, False),
                "lsm": lambda: _gets(store.get, entries.absent, False),
            }),
            ("scan of everything", 0.5, {
                "rocks": lambda: _rows(rocks.db.items, count),
                "lsm": lambda: _rows(lambda: store.scan(b"", None), count),
                "dict": lambda: _rows(lambda: sorted(plain.items()), count),
            }),
        ]  # fmt: skip
        results = []
        for case, goal, programs in trials:
            paired = interleaved(programs.pop("rocks"), programs, rounds)
            number = count if case.startswith("scan") else len(wanted)
            results.append(_ratio(case, paired, number, at_least(goal)))
        start = now()
        store.compact_all()
        results.append(Result("merge everything into one run", "s", (now() - start,)))
    return results


def _puts_alone(entries: _Entries) -> Result:
    """What can be said without anything to compare with."""
    with _lsm() as store:
        seconds = _load(store.put, entries)
    return Result(f"put {len(entries.keys):,} entries", "/s", (len(entries.keys) / seconds,))


# --- checkpoints ---


def _checkpoints(entries: _Entries, rocksdict: Any) -> list[Result]:
    """Load, checkpoint, then change a hundredth and checkpoint, again and again: time, and bytes to upload."""
    with _rocks(rocksdict) as rocks, _lsm() as store, TemporaryDirectory(prefix="weir-bench-") as directory:
        _load(rocks.db.__setitem__, entries)
        _load(store.put, entries)
        own, theirs = _Uploads(f"{directory}/lsm"), _Uploads(f"{directory}/rocks")
        for number in range(_CHECKPOINTS + 1):
            if number:
                for index in entries.updates():
                    key, value = entries.keys[index], entries.values[index - 1]
                    store.put(key, value)
                    rocks.db[key] = value
                rocks.settle()
            own.take(store.checkpoint)
            theirs.take(rocks.checkpoint)
    ratios = [ours / rocks_ms for ours, rocks_ms in zip(own.sync_ms[1:], theirs.sync_ms[1:], strict=True)]
    times = {"lsm_ms": round(median(own.sync_ms[1:]), 1), "rocksdb_ms": round(median(theirs.sync_ms[1:]), 1)}
    floor = round(len(entries.keys) * _UPDATED) * (16 + _VALUE_BYTES)
    series = {
        "lsm_series": " ".join(f"{one / 1e6:.1f}" for one in own.new_bytes),
        "rocksdb_series": " ".join(f"{one / 1e6:.1f}" for one in theirs.new_bytes),
    }
    for name, text in series.items():
        print(f"lsm: uploads in MB, {name.removesuffix('_series')}: {text}", file=sys.stderr)
    return [
        Result("checkpoint after 1 % updates, synchronous part", "x RocksDB", tuple(ratios), below(2.0), times),
        Result(
            "the same: new bytes, median",
            "x RocksDB",
            (median(own.new_bytes[1:]) / median(theirs.new_bytes[1:]),),
            below(1.2),
            {"over_changed_bytes": round(median(own.new_bytes[1:]) / floor, 2)},
        ),
        Result("the same: new bytes, all ten", "x RocksDB", (sum(own.new_bytes[1:]) / sum(theirs.new_bytes[1:]),)),
    ]


class _Uploads:
    """Takes checkpoints of one store and counts what is new in each."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._known: set[str] = set()
        self.sync_ms: list[float] = []
        self.new_bytes: list[int] = []

    def take(self, checkpoint: Callable[[str], Any]) -> None:
        where = f"{self._directory}-{len(self.sync_ms)}"
        start = now()
        checkpoint(where)
        self.sync_ms.append(1e3 * (now() - start))
        files = {path.name: path.stat().st_size for path in sorted(Path(where).iterdir())}
        # What is no data file is uploaded each time.
        new = {name: size for name, size in files.items() if not name.endswith(".sst") or name not in self._known}
        self._known = {name for name in files if name.endswith(".sst")}
        self.new_bytes.append(sum(new.values()))


# --- memory ---


def _memory(count: int) -> list[Result]:
    """How a process grows whose state is ten times its cache, and one that holds the same in a dict."""
    cache_mib = max(1, count * _DECODED_ENTRY_BYTES // 10 // _MIB)
    lsm, plain = (_grown_in_own_process(call) for call in (f"grow_lsm({count}, {cache_mib})", f"grow_dict({count})"))
    case = f"memory of {count:,} entries, all read, with a cache of {cache_mib} MiB"
    return [Result(case, "MiB (RSS)", (lsm / _MIB,), None, {"dict_mib": round(plain / _MIB)})]


def _grown_in_own_process(call: str) -> int:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", f"from benchmarks import lsm; print(lsm.{call})"]
    return int(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout)


def _stream(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries made on the way, so that nothing but the store holds them."""
    source = random.Random(7)
    for number in range(count):
        yield (number % 128).to_bytes(2, "big") + source.randbytes(14), source.randbytes(_VALUE_BYTES)


def grow_lsm(count: int, cache_mib: int) -> int:
    """By how many bytes this process grows while a store takes in all entries and gives each back once. The library
    numpy, which a process loads once whatever the size of its state, is not counted."""
    with suppress(ImportError):
        import numpy  # noqa: F401
    before = _resident_bytes()
    with _lsm(cache_bytes=cache_mib * _MIB) as store:
        for key, value in _stream(count):
            store.put(key, value)
        for key, value in _stream(count):
            assert store.get(key) == value
        return _resident_bytes() - before


def grow_dict(count: int) -> int:
    """The same with a dict."""
    before = _resident_bytes()
    entries = dict(_stream(count))
    grown = _resident_bytes() - before
    assert len(entries) == count
    return grown


def _resident_bytes() -> int:
    import resource

    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()
