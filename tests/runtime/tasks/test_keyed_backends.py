"""The runtime's duties to a keyed state backend: names, a place for its files, notifications, time, one disposal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.errors import ConfigurationError
from engine.graph.job import Job
from engine.observe.trace_events import BackgroundWorkDone, TraceEvent
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.kernel import START_NS
from engine.runtime.storage import SharedStreams
from operators.basic import ReduceOperator
from state_backends.api import BackendEnvironment
from state_backends.base import BackgroundWork
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend, HeapStateBackend
from tests.runtime.support import BASE_DIR, collected, every, execution, expected_counts, files_below, running_count

US = 1_000
FAST = {
    "batch_size": 5,
    "checkpoint_interval": every(ns=20 * US),
    "restart": FixedDelayRestart(None, US),
    "master_recovery_ns": US,
}


class Work(BackgroundWork):
    """Work of so many steps, of 100 bytes each; ``fails`` in the last."""

    def __init__(self, name: str, steps: int = 3, *, fails: bool = False) -> None:
        self.name = name
        self.left = steps
        self.cancelled = 0
        self._fails = fails

    def step(self) -> int | None:
        if not self.left:
            return None
        self.left -= 1
        if not self.left and self._fails:
            raise OSError(5, "input/output error", self.name)
        return 100

    def cancel(self) -> None:
        self.cancelled += 1


@dataclass
class Spied:
    """A state backend on the heap that records every call."""

    name: str = "spied"
    incremental: bool = False
    environments: list[BackendEnvironment] = field(default_factory=list)
    told: list[tuple[str, str, int]] = field(default_factory=list)
    """``(unique, what, checkpoint)``."""
    disposed: Counter[str] = field(default_factory=Counter)
    works: dict[str, list[Work]] = field(default_factory=dict)
    failing_restores: int = 0

    def create_keyed_backend(self, environment: BackendEnvironment) -> HeapKeyedStateBackend:
        self.environments.append(environment)
        gone = [one.working_dir for one in self.environments if one is environment or self.disposed[one.unique]]
        assert not any(environment.file_system.exists(directory) for directory in gone)
        environment.file_system.make_dirs(environment.working_dir)
        with environment.file_system.open_write(f"{environment.working_dir}/file") as file:
            file.write(b"local")
        for work in self.works.get(environment.unique, ()):
            environment.executor.submit(work)
        spied, backend = self, HeapStateBackend().create_keyed_backend(environment)

        class History:
            """Records the notifications it gets."""

            def complete(self, checkpoint_id: int) -> None:
                spied.told.append((environment.unique, "complete", checkpoint_id))

            def abort(self, checkpoint_id: int) -> None:
                spied.told.append((environment.unique, "aborted", checkpoint_id))

            def subsumed(self, checkpoint_id: int) -> None:
                spied.told.append((environment.unique, "subsumed", checkpoint_id))

        class Backend(type(backend)):  # type: ignore[misc]
            def restore(self, handles: Any, reader: Any) -> None:
                if spied.failing_restores:
                    spied.failing_restores -= 1
                    raise OSError(5, "input/output error")
                super().restore(handles, reader)

            def dispose(self) -> None:
                spied.disposed[environment.unique] += 1

        backend.__class__ = Backend
        backend.history = History()
        return backend


def ran(spied: Spied, *, records: int = 100, parallelism: int = 1, **settings: Any) -> tuple[Any, Any]:
    """A counting job over that backend: the execution and its result."""
    files, results = MemoryFileSystem(), collected()
    job = running_count(Job("spied", parallelism=parallelism), records, results)
    made = execution(job, file_system=files, state_backend=spied, **{**FAST, **settings})
    result = made.run()
    assert Counter(results.records) == expected_counts(records)
    left = [path for path in files_below(files) if "/work/" in path]
    assert left == []
    return made, result


@pytest.mark.parametrize("victim", [None, "count[0]", "numbers[0]", "job manager"])
def test_every_backend_is_disposed_of_once_and_its_files_are_deleted(victim: str | None) -> None:
    """Whether its task finished, was killed or cancelled, or its job manager died; and every backend has a new name."""
    spied = Spied()
    kills = [] if victim is None else [(victim, 47 * US), (victim, 90 * US)]

    ran(spied, parallelism=2, kills=kills)

    names = [environment.unique for environment in spied.environments]
    assert len(set(names)) == len(names) == (2 if victim is None else 6)
    assert spied.disposed == Counter(names)


def test_a_backend_that_cannot_be_restored_is_disposed_of() -> None:
    """The attempt fails, and the backend that was restored in part is disposed of; the next attempt has its own."""
    spied = Spied(failing_restores=2)

    _, result = ran(spied, kills=[("count[0]", 47 * US)])

    assert result.attempts == 4
    assert spied.disposed == Counter(environment.unique for environment in spied.environments)


def test_a_backend_is_told_before_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete reaches backend and operator in this order; afterwards the backend alone hears what was subsumed."""
    spied = Spied()

    def complete(operator: ReduceOperator, checkpoint_id: int) -> None:
        spied.told.append(("operator", "complete", checkpoint_id))

    monkeypatch.setattr(ReduceOperator, "notify_checkpoint_complete", complete)
    ran(spied, retained=1)

    (name,) = {environment.unique for environment in spied.environments}
    told = [one for one in spied.told if one[1:] in (("complete", 2), ("subsumed", 1))]
    assert told == [(name, "complete", 2), ("operator", "complete", 2), (name, "subsumed", 1)]


def test_a_backend_is_told_of_checkpoints_that_were_given_up() -> None:
    """For example, of those that expire because their upload takes too long."""
    spied = Spied()

    ran(
        spied,
        cost=CostModel(storage_latency_ns=9 * US),
        checkpoint_timeout_ns=25 * US,
        inline_state_bytes=0,
        tolerable_failures=1000,
    )

    assert "aborted" in [what for _, what, _ in spied.told]


def test_the_clock_of_a_backend_is_the_virtual_one() -> None:
    """Not the wall clock."""
    spied = Spied()
    made, _ = ran(spied)

    assert spied.environments[0].now_ms() == made.kernel.now_ns // 1_000_000


def test_background_work_takes_virtual_time_and_comes_in_order() -> None:
    """Each step takes the time of its bytes; the second work begins when the first is done. Both are in the trace."""
    works = [Work("first", 3), Work("second", 1)]
    spied, events = Spied(), []
    name = "count-0-1-1-0"
    spied.works = {name: works}

    def hear(event: TraceEvent) -> None:
        if isinstance(event, BackgroundWorkDone):
            events.append(event)

    cost = CostModel(storage_bytes_per_s=100_000_000)
    ran(spied, cost=cost, instruments=[hear], checkpoint_interval=None)

    assert spied.environments[0].unique == name
    assert [(one.work, one.time_ns - START_NS, one.size_bytes, one.duration_ns) for one in events] == [
        ("first", 3_000, 300, 3_000),
        ("second", 4_000, 100, 1_000),
    ]
    assert events[0].operator == "count -> out[0]/count"


class Upload(Work):
    """Writes two files to checkpoint storage in its first step, and moves no byte in the others."""

    streams: SharedStreams

    def step(self) -> int | None:
        moved = super().step()
        if moved is None:
            return None
        if self.left == 2:
            for _ in range(2):
                stream = self.streams.create_stream()
                stream.write(b"x" * 50)
                stream.close_and_get_handle()
            return 100
        return 0


def test_background_work_pays_for_each_file_in_checkpoint_storage_once() -> None:
    """Latency is charged per file, and not per step."""
    upload, spied, events = Upload("upload", 3), Spied(), []
    spied.works = {"count-0-1-1-0": [upload]}
    create = spied.create_keyed_backend

    def creating(environment: BackendEnvironment) -> HeapKeyedStateBackend:
        assert isinstance(environment.shared_streams, SharedStreams)
        upload.streams = environment.shared_streams
        return create(environment)

    def hear(event: TraceEvent) -> None:
        if isinstance(event, BackgroundWorkDone):
            events.append(event.duration_ns)

    spied.create_keyed_backend = creating  # type: ignore[method-assign]
    cost = CostModel(storage_latency_ns=7_000, storage_bytes_per_s=100_000_000)
    ran(spied, cost=cost, instruments=[hear], checkpoint_interval=None)

    assert events == [2 * 7_000 + 1_000]


def test_background_work_is_cancelled_with_its_task() -> None:
    """Each step that was not done is cancelled once; none of its steps runs later."""
    works = [Work("first", 10**6), Work("second")]
    spied = Spied()
    spied.works = {"count-0-1-1-0": works}

    ran(spied, cost=CostModel(storage_bytes_per_s=10**8), kills=[("count[0]", 30 * US)])

    assert [work.cancelled for work in works] == [1, 1]
    assert works[0].left > 10**6 - 40
    assert works[1].left == 3


def test_background_work_that_fails_fails_the_task() -> None:
    """A store that fails to compact its local files may fail to read them: the job goes back to a checkpoint."""
    spied = Spied()
    spied.works = {"count-0-1-1-0": [Work("compaction", 3, fails=True)]}

    _, result = ran(spied, cost=CostModel(storage_bytes_per_s=10**7))

    assert result.attempts == 2
    assert any("input/output error" in note for note in result.notes)


def test_state_backends_are_chosen_by_name_or_given() -> None:
    """A value that cannot be used is refused when the configuration is made."""
    assert RunConfig(state_backend="changelog:lsm", snapshot="incremental").backend().name == "changelog:lsm"
    assert RunConfig(state_backend=HeapStateBackend(incremental=True)).backend().incremental
    for settings, message in (
        ({"state_backend": "disk"}, "'disk' is none of heap, lsm"),
        ({"state_backend": HeapStateBackend}, "is .*HeapStateBackend.* of type type"),
        ({"state_backend": 7}, "of type int"),
        ({"state_backend": HeapStateBackend(), "snapshot": "incremental"}, "make it with incremental=True"),
        ({"snapshot": "partial"}, "snapshot is 'partial'; it must be one of full, incremental"),
        ({"snapshot_compression": "zstd"}, "snapshot_compression is 'zstd'"),
        ({"local_recovery": "no"}, "local_recovery=True or local_recovery=False"),
        ({"materialization_interval_ns": 5}, "must be at least 1000000"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            RunConfig(**settings)


def test_full_snapshots_can_be_compressed() -> None:
    """The same state takes fewer bytes, and it is restored."""
    sizes = {}
    for compression in ("none", "zlib"):
        files, results = MemoryFileSystem(), collected()
        job = running_count(Job("compressed", max_parallelism=1), 600, results, keys=300)
        made = execution(
            job,
            file_system=files,
            snapshot_compression=compression,
            inline_state_bytes=0,
            kills=[("count[0]", 300 * US)],
            **FAST,
        )
        assert made.run().attempts == 2
        assert Counter(results.records) == expected_counts(600, 300)
        sizes[compression] = sum(len(data) for path, data in files_below(files, BASE_DIR).items() if "keyed" in path)
    assert 0 < sizes["zlib"] < sizes["none"] * 0.8
