"""The staged sink in real jobs. Faults strike every call to the files of its table: errors, crashes and power failures.
Jobs are killed task by task, with and without earlier contents."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from engine.graph.job import Job
from operators.sources import SequenceSource
from operators.table.partitions.commit_policies import SuccessFilePolicy
from operators.table.staging.staged_sink import StagedFileSink
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.runtime.support import every, execution

RECORDS = 60
TABLE = "/out/t"
KINDS = (FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER, FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER)


def row_of(number: int) -> dict[str, Any]:
    return {"n": number, "day": number % 3}


def insert(overwrite: bool, parallelism: int = 2, **options: Any) -> Job:
    job = Job("insert", parallelism=parallelism)
    sink = StagedFileSink("t", partition_by=["day"], overwrite=overwrite, policies=[SuccessFilePolicy()], **options)
    job.source(SequenceSource(0, RECORDS), name="numbers").map(row_of, name="row").sink(sink, name="table")
    return job


def put(disk: MemoryFileSystem, path: str, *rows: int) -> None:
    directory = path.rpartition("/")[0]
    disk.make_dirs(directory)
    with disk.open_write(path) as file:
        file.write("".join(f'{{"n":{row}}}\n' for row in rows).encode())
        file.fsync()
    disk.fsync_dir(directory)


def table_with_rows() -> MemoryFileSystem:
    """Partitions 1 and 7 have a row each; partition 1 also has a hidden file."""
    disk = MemoryFileSystem()
    put(disk, f"{TABLE}/day=1/old", -1)
    put(disk, f"{TABLE}/day=1/.keep", -2)
    put(disk, f"{TABLE}/day=7/old", -7)
    return disk


def visible(disk: MemoryFileSystem) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for path in disk.walk_files(TABLE):
        *directories, name = path.removeprefix(f"{TABLE}/").split("/")
        if not any(part.startswith((".", "_")) for part in (*directories, name)):
            for line in disk.read_bytes(path).decode().splitlines():
                found["/".join(directories), json.loads(line)["n"]] += 1
    return found


NEW = Counter((f"day={number % 3}", number) for number in range(RECORDS))
UNTOUCHED = Counter({("day=7", -7): 1})
REPLACED = Counter({("day=1", -1): 1})


def run(disk: MemoryFileSystem, overwrite: bool, rules: list[FaultRule], **settings: Any) -> int:
    """Run to the end, over as many processes as needed; returns the first process's calls to the table."""
    calls: list[int] = []
    for incarnation in range(1, 4):
        fs = FaultInjectingFileSystem(disk, () if calls else rules)
        made = execution(
            insert(overwrite),
            file_system=fs,
            restore=incarnation > 1,
            incarnation=incarnation,
            batch_size=4,
            checkpoint_interval=every(records=20),
            **settings,
        )
        try:
            made.run().raise_on_failure()
        except SimulatedCrashError:
            disk.crash()
        else:
            return calls[0] if calls else count_calls(fs)
        finally:
            calls.append(count_calls(fs))
            check(disk, overwrite)
    raise AssertionError("the job does not come to its end")


def count_calls(fs: FaultInjectingFileSystem) -> int:
    return len([call for call in fs.calls if call.path.startswith(TABLE)])


def check(disk: MemoryFileSystem, overwrite: bool) -> None:
    """At any moment a reader sees no row twice, and sees partitions that are not written as they were."""
    seen = visible(disk)
    assert seen <= NEW + UNTOUCHED + REPLACED
    assert seen >= UNTOUCHED + (Counter() if overwrite else REPLACED)


def check_end(disk: MemoryFileSystem, overwrite: bool) -> None:
    assert visible(disk) == NEW + UNTOUCHED + (Counter() if overwrite else REPLACED)
    assert disk.exists(f"{TABLE}/day=1/.keep")
    assert [disk.exists(f"{TABLE}/day={day}/_SUCCESS") for day in (0, 1, 2, 7)] == [True, True, True, False]
    assert not [name for name in disk.list_dir(TABLE) if name.startswith(".staging")]


@pytest.mark.parametrize("overwrite", [True, False])
def test_nothing_is_visible_before_the_job_has_succeeded(overwrite: bool) -> None:
    """Then everything is visible; partitions without rows in the input keep theirs."""
    disk = table_with_rows()
    run(disk, overwrite, [])
    check_end(disk, overwrite)


def strike(overwrite: bool, kind: FileFault, first: int, step: int) -> None:
    """One run for each ``step``-th call, which fails."""
    calls = run(table_with_rows(), overwrite, [])
    assert calls > 60
    for call in range(first, calls + 1, step):
        disk = table_with_rows()
        run(disk, overwrite, [FaultRule(kind, path=f"{TABLE}*", at_call=call)])
        check_end(disk, overwrite)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_fault_at_some_calls(overwrite: bool, kind: FileFault) -> None:
    """Whichever call to the table fails or is the last one before a power failure: all rows are there once."""
    strike(overwrite, kind, KINDS.index(kind) + 1, 11)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_fault_at_every_call(overwrite: bool, kind: FileFault) -> None:
    """The same, for every call."""
    strike(overwrite, kind, 1, 1)


@pytest.mark.parametrize("overwrite", [True, False])
def test_tasks_are_killed(overwrite: bool) -> None:
    """A writer is killed, and the finalizer: before, while and after it makes its plan."""
    for killed_us in range(4, 64, 6):
        for task in ("table writer[0]", "table finalizer[0]"):
            disk = table_with_rows()
            run(disk, overwrite, [], kills=[(task, killed_us * 1_000)])
            check_end(disk, overwrite)


@pytest.mark.parametrize("mode", ["none", "unaligned", "at-least-once"])
def test_other_modes(mode: str) -> None:
    """Without a failure the result is the same with any barriers, and without."""
    disk = table_with_rows()
    run(disk, True, [], mode=mode)
    check_end(disk, True)
