"""A small job with keyed state of every kind whose output lies in files, as ``weir run`` and ``weir resume`` run it.

Everything that it touches lies on one file system, so that a test can fail each call, cut the power, and damage files;
sinks that write files take back rows committed after the checkpoint to which a run goes back.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import ExecutionResult
from operators.files.sinks import FileSink, read_committed
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from state_backends.api import StateBackend
from state_backends.changelog import ChangelogStateBackend
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.lsm import LsmStateBackend
from state_backends.named import state_backend_named
from state_backends.snapshots import CheckpointStorage
from tests.scenarios.live_files import check_live_files
from tests.scenarios.stateful_jobs import Everything
from tests.stored_runs import run_stored

RECORDS, KEYS = 40, 3
DIRECTORY, OUT, NAME = "/state", "/out", "recorded"
JOB_DIR = posixpath.join(DIRECTORY, NAME)

INCREMENTAL = ("lsm", "heap", "changelog", "changelog:lsm")
"""The backends whose checkpoints share files."""


def recorded_job(first: int = 0) -> Job:
    """All kinds of state in one subtask, and files; ``first`` is the first number of its input."""
    job = Job(NAME, max_parallelism=4)
    by_number = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_interval_ns(150_000)
    numbers = job.source(SequenceSource(first, first + RECORDS), name="numbers", watermarks=by_number)
    rows = numbers.key_by(lambda number: number * 7 % KEYS).process(Everything(), name="everything")
    return rows.sink(FileSink("rows", bucket=lambda row: f"key={row[1]}"), name="files", chain=False)


def small_backend(name: str) -> StateBackend:
    """An incremental backend so small that 40 records flush, compact, cut log segments and materialise."""
    if name.startswith("changelog"):
        inner = small_backend(name.partition(":")[2] or "heap")
        return ChangelogStateBackend(inner, materialization_interval_ms=1, segment_bytes=600)
    if name == "lsm":
        return LsmStateBackend(True, memtable_bytes=700, block_bytes=200, cache_bytes=2_000, level0_trigger=2)
    return state_backend_named(name, incremental=True)


def run(
    files: FileSystem,
    backend: str,
    *,
    first: int = 0,
    resume: bool = False,
    kills: Iterable[tuple[str, int]] = (),
    instruments: Sequence[Any] = (),
    **settings: Any,
) -> ExecutionResult:
    """Act like ``weir run --storage`` and ``weir resume``, on any file system. Raises the job's error."""
    given: dict[str, Any] = {"restart": FixedDelayRestart(None, 50_000), **settings}
    config = RunConfig(
        state_backend=small_backend(backend),
        batch_size=4,
        checkpoint_interval=CheckpointInterval(records=8),
        inline_state_bytes=0,
        retained=2,
        tolerable_failures=10**6,
        cost=CostModel(source_record_ns=50_000, record_ns=5_000, storage_latency_ns=4_000),
        **given,
    )
    ran = run_stored(recorded_job(first), config, files, resume=resume, kills=kills, instruments=instruments)
    return ran.raise_on_failure()


def storage_on(files: FileSystem) -> CheckpointStorage:
    return CheckpointStorage(files, DIRECTORY, NAME, inline_threshold_bytes=0)


def committed(files: FileSystem) -> dict[str, list[str]]:
    return read_committed(files, posixpath.join(OUT, "rows"))


def expected() -> dict[str, list[str]]:
    """The rows that an undisturbed run on the heap commits."""
    files = MemoryFileSystem()
    run(files, "heap")
    rows = committed(files)
    assert sum(map(len, rows.values())) > RECORDS
    return rows


def check_files(files: FileSystem, **how: Any) -> dict[int, list[str]]:
    """Every retained checkpoint is whole, and there is nothing else; see :func:`check_live_files`."""
    return check_live_files(files, storage_on(files), **how)
