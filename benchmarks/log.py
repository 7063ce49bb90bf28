"""A log on disk beside the plainest loop that appends the same records to a file and syncs it as often."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack

from benchmarks.measure import Paired, Result, at_least, interleaved, now, per_second
from operators.log.disk import DiskTransactionLog, LogSettings, PartitionReader, partition_directory
from state_backends.files import LocalFileSystem

Row = tuple[str, int, float]
BATCH, PER_TRANSACTION = 500, 10_000
TIMEOUT_NS = 60_000_000_000


def measure(quick: bool) -> list[Result]:
    """Appending in transactions and without, and reading what is committed."""
    count, rounds = (20_000, 3) if quick else (400_000, 5)
    rows: list[Row] = [(f"name-{number % 977}", number, number * 0.25) for number in range(count)]
    batches: list[list[Any]] = [list(rows[at : at + BATCH]) for at in range(0, count, BATCH)]
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        return [*_appending(batches, directory, rounds), *_reading(batches, directory, rounds)]


# --- appending ------------------------------------------------------------------------------------------------


def _appending(batches: list[list[Any]], directory: str, rounds: int) -> list[Result]:
    count = sum(map(len, batches))
    cases = {
        "append in transactions": (partial(_append_in_transactions, batches), 4),
        "append, flushed as often": (partial(_append_plainly, batches), 2),
    }
    results = []
    for name, (trial, fsyncs) in cases.items():
        reference = partial(_append_to_file, batches, directory, fsyncs)
        measured = interleaved(reference, {name: partial(trial, directory)}, rounds)
        results.append(_result(name, f"× file with {fsyncs} fsyncs each time", measured[name], count, 0.3))
    return results


def _append_to_file(batches: list[list[Any]], directory: str, fsyncs: int) -> float:
    """Batches as msgpack, one behind the other, written by a buffered file; at the end of what would be a transaction
    as many fsyncs, each of something, as the log makes."""
    path = Path(directory) / "plain"
    pack = msgpack.Packer(use_bin_type=True).pack
    began = now()
    written = 0
    with open(path, "wb", buffering=1 << 18) as file:
        for batch in batches:
            file.write(pack(batch))
            written += len(batch)
            if written >= PER_TRANSACTION or batch is batches[-1]:
                written = 0
                for _ in range(fsyncs):
                    file.write(b"\0")
                    file.flush()
                    os.fsync(file.fileno())
    took = now() - began
    path.unlink()
    return took


def _opened(directory: str) -> DiskTransactionLog:
    fs, path = LocalFileSystem(), f"{directory}/log"
    fs.delete_tree(path)
    log = DiskTransactionLog(fs, path, LogSettings())
    log.create_topic("t", 1)
    return log


def _append_in_transactions(batches: list[list[Any]], directory: str) -> float:
    log = _opened(directory)
    producer = log.init_transactions("bench", TIMEOUT_NS, 0)
    began = now()
    log.begin(producer, 0)
    written = 0
    for batch in batches:
        log.append(producer, "t", 0, batch, written, 0)
        written += len(batch)
        if written >= PER_TRANSACTION:
            log.prepare(producer, 0)
            producer, written = log.commit(producer, 0), 0
            log.begin(producer, 0)
    log.prepare(producer, 0)
    log.commit(producer, 0)
    took = now() - began
    log.close()
    return took


def _append_plainly(batches: list[list[Any]], directory: str) -> float:
    log = _opened(directory)
    began = now()
    written = 0
    for batch in batches:
        log.append(None, "t", 0, batch, 0, 0)
        written += len(batch)
        if written >= PER_TRANSACTION:
            log.flush()
            written = 0
    log.flush()
    took = now() - began
    log.close()
    return took


# --- reading --------------------------------------------------------------------------------------------------


def _reading(batches: list[list[Any]], directory: str, rounds: int) -> list[Result]:
    count = sum(map(len, batches))
    _append_in_transactions(batches, directory)
    path = Path(directory) / "plain"
    with open(path, "wb") as file:
        for batch in batches:
            file.write(msgpack.packb(batch))
    name = "read what is committed"
    measured = interleaved(partial(_read_file, path, count), {name: partial(_read_log, directory, count)}, rounds)
    return [_result(name, "× msgpack.Unpacker", measured[name], count, 0.3)]


def _read_file(path: Path, count: int) -> float:
    began = now()
    with open(path, "rb") as file:
        rows = [tuple(row) for batch in msgpack.Unpacker(file) for row in batch]
    took = now() - began
    assert len(rows) == count
    return took


def _read_log(directory: str, count: int) -> float:
    began = now()
    reader = PartitionReader(LocalFileSystem(), partition_directory(f"{directory}/log", "t", 0), "t-0", 0)
    read = 0
    while values := reader.read(4096)[0]:
        read += len(values)
    took = now() - began
    assert read == count, read
    return took


def _result(name: str, unit: str, pairs: Paired, count: int, goal: float) -> Result:
    details = {"records_per_s": per_second(count, pairs.seconds)}
    return Result(name, unit, pairs.speed_ratios, at_least(goal), details)
