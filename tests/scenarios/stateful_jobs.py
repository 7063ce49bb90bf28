"""A job that uses keyed state of every kind, and ways to run it on every state backend.

Its source numbers records in order of time and has one subtask, so the output is a function of the input: a run
without faults on the heap says what every other run has to commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage import SavepointRestore
from operators.basic import AggregateFunction, CollectedResults, KeyedProcessFunction
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import EventTimeSessionWindows, TumblingEventTimeWindows
from state_backends.api import StateBackend
from state_backends.changelog import ChangelogStateBackend
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.lsm import LsmStateBackend
from state_backends.named import state_backend_named
from state_backends.snapshots import CheckpointStorage

RECORDS, KEYS = 120, 5
CHECKPOINTS, JOB = "/checkpoints", "stateful"
COST = CostModel(source_record_ns=50_000, record_ns=20_000, storage_latency_ns=4_000, storage_bytes_per_s=40_000_000)
PADDING = "p" * 40
"""So that some state is larger than what a small store holds in memory."""


class Everything(KeyedProcessFunction):
    """Value, list, map and reducing state, and event-time timers."""

    def open(self, ctx: Any) -> None:
        self.count = ctx.value_state("count", 0)
        self.recent = ctx.list_state("recent")
        self.planned = ctx.map_state("planned")
        self.highest = ctx.reducing_state("highest", max)

    def process_element(self, value: int, ctx: Any) -> list[Any]:
        self.count.update(self.count.get() + 1)
        self.recent.add(value)
        recent = tuple(self.recent.get())
        if len(recent) == 4:
            self.recent.clear()
        self.planned.put(value + 30, PADDING + str(value))
        ctx.register_event_time_timer(value + 30)
        if value % 9 == 0:
            ctx.delete_event_time_timer(value + 30)
            self.planned.remove(value + 30)
        self.highest.add(value % 17)
        return [("seen", ctx.current_key, self.count.get(), recent, self.highest.get())]

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        text = self.planned.get(timestamp_ms)
        self.planned.remove(timestamp_ms)
        return [("timer", ctx.current_key, timestamp_ms, text)]


def stateful(results: CollectedResults, *, parallelism: int = 2, records: int = RECORDS) -> Job:
    """Two regions: one with all kinds of state and windows, one that only counts."""
    job = Job(JOB, max_parallelism=8)
    by_number = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_interval_ns(450_000)
    numbers = job.source(SequenceSource(0, records), name="numbers", watermarks=by_number)
    everything = numbers.key_by(lambda number: number * 7 % KEYS)
    everything.process(Everything(), name="everything", parallelism=parallelism).collect(results, name="all")
    latest = AggregateFunction(lambda: (), lambda seen, number: (*seen, number)[-3:], lambda seen: seen)
    texts = numbers.key_by(lambda number: f"key {number % 3}")
    windows = texts.window(TumblingEventTimeWindows.of(16)).aggregate(latest, name="windows", parallelism=parallelism)
    windows.collect(results, name="windowed")
    bursts = numbers.filter(lambda number: number % 20 < 12).key_by(lambda number: number % 2)
    sessions = bursts.window(EventTimeSessionWindows.with_gap(5)).process(_whole, name="sessions")
    sessions.collect(results, name="sessions out")
    others = job.source(SequenceSource(0, records), name="others").key_by(
        lambda number: number % KEYS, value=lambda number: (number % KEYS, 1)
    )
    counted = others.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=parallelism)
    counted.collect(results, name="counted")
    return job


def _whole(key: Any, window: Any, values: Iterable[int]) -> list[Any]:
    return [("session", key, window.start, window.end, tuple(values))]


BACKENDS, SNAPSHOTS = ("heap", "lsm", "changelog", "changelog:lsm"), ("full", "incremental")
FORMS = [(name, snapshot) for name in BACKENDS for snapshot in SNAPSHOTS]
"""Every state backend of our own with every kind of checkpoint."""


def backend(name: str, snapshot: str = "full") -> StateBackend:
    """A state backend so small that everything it can do happens within a hundred records."""
    if name.startswith("changelog"):
        inner = backend(name.partition(":")[2] or "heap", snapshot)
        return ChangelogStateBackend(inner, materialization_interval_ms=2, segment_bytes=700)
    incremental = snapshot == "incremental"
    if name == "lsm":
        return LsmStateBackend(incremental, memtable_bytes=1_000, block_bytes=200, cache_bytes=2_000, level0_trigger=2)
    return state_backend_named(name, incremental=incremental)


def settings(name: str = "heap", snapshot: str = "full", **more: Any) -> RunConfig:
    """A configuration in which much happens in the ten virtual ms that the job takes. All state goes into files."""
    given: dict[str, Any] = {
        "state_backend": backend(name, snapshot),
        "batch_size": 4,
        "channel_capacity": 8,
        "checkpoint_interval": CheckpointInterval(time_ns=600_000),
        "restart": FixedDelayRestart(None, 100_000),
        "master_recovery_ns": 100_000,
        "tolerable_failures": 10**6,
        "inline_state_bytes": 0,
        "cost": COST,
    }
    return RunConfig(**{**given, **more})


class Ran:
    def __init__(
        self,
        config: RunConfig,
        *,
        files: FileSystem | None = None,
        directory: str = CHECKPOINTS,
        kills: Iterable[tuple[str, int]] = (),
        savepoints: Iterable[tuple[int, dict[str, Any]]] = (),
        restore_from: SavepointRestore | None = None,
        restore: bool = False,
        results: CollectedResults | None = None,
        parallelism: int = 2,
        records: int = RECORDS,
        incarnation: int = 1,
        instruments: Iterable[Any] = (),
    ) -> None:
        self.files = MemoryFileSystem() if files is None else files
        self.results = CollectedResults() if results is None else results
        self.oracle = CutOracle()
        self.storage = CheckpointStorage(self.files, directory, JOB, inline_threshold_bytes=config.inline_state_bytes)
        self.execution = Execution(
            stateful(self.results, parallelism=parallelism, records=records).plan(),
            config,
            storage=self.storage,
            file_system=self.files,
            output_dir="/out",
            incarnation=incarnation,
            restore=restore,
            restore_from=restore_from,
            instruments=[self.oracle, *instruments],
        )
        for target, at_ns in kills:
            self.execution.kill(target, at_ns)
        for at_ns, how in savepoints:
            self.execution.savepoint(at_ns, "/savepoints", **how)

    def run(self) -> ExecutionResult:
        """Run to the end; raises the job's error. The rules between two events are checked every now and then."""

        def step(_progress: Any) -> None:
            while self.execution.kernel.run(31) == 31 and not self.execution.kernel.stopped:
                self.execution.manager.validate()

        self.execution._run_kernel = step  # type: ignore[method-assign, assignment]
        return self.execution.run().raise_on_failure()

    def checkpoint_files(self) -> dict[str, bytes]:
        return {path: self.files.read_bytes(path) for path in self.files.walk_files(self.storage.job_dir)}

    @property
    def committed(self) -> Counter[Any]:
        return Counter(self.results.records)
