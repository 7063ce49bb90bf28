"""The power is cut at every single call to the file system; each test chooses what the disk keeps; the job resumes."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import ExecutionResult
from engine.runtime.storage import open_storage
from operators.files.sinks import FileSink, read_committed
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.stored_runs import run_stored

RECORDS = 24
Survives = Callable[[str], bool]


def counting_job() -> Job:
    """A running count per key, written to files."""
    job = Job("power")
    pairs = job.source(SequenceSource(0, RECORDS), name="numbers").key_by(
        lambda number: number % 3, value=lambda number: (number % 3, 1)
    )
    counted = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    return counted.sink(FileSink("rows", bucket=lambda row: f"key={row[0]}"), name="files")


EXPECTED = {f"key={key}": sorted(f"[{key},{count}]" for count in range(1, 9)) for key in range(3)}


def run(files: FileSystem, *, resume: bool, kill: bool = False) -> ExecutionResult:
    """The same as ``weir run --storage`` and ``weir resume``, on any file system."""
    config = RunConfig(
        batch_size=4,
        checkpoint_interval=CheckpointInterval(records=8),
        inline_state_bytes=0,
        retained=2,
        restart=FixedDelayRestart(3, 1_000),
    )
    kills = [("count", 20_000)] if kill else []
    return run_stored(counting_job(), config, files, resume=resume, kills=kills).raise_on_failure()


def cut_at(files: MemoryFileSystem, call: int, survives: Survives | None, **settings: Any) -> FaultInjectingFileSystem:
    """Run until the power is cut right before a call (or to the end), and lose the data that the disk does not keep."""
    faulty = FaultInjectingFileSystem(files, [FaultRule(FileFault.CRASH_BEFORE, at_call=call)])
    try:
        run(faulty, **settings)
    except SimulatedCrashError:
        files.crash(survives)
    return faulty


def number_of_calls(**settings: Any) -> int:
    """How many calls a run without a cut makes."""
    files = FaultInjectingFileSystem(MemoryFileSystem())
    run(files, **settings)
    return len(files.calls)


def some(seed: object) -> Survives:
    """A disk on which some directories arrived and others did not: a rename in one arrives whole or not at all."""
    return lambda path: random.Random(f"{seed} {posixpath.dirname(path)}").random() < 0.5


def everything(path: str) -> bool:
    """A disk that kept all data: the process died, the machine did not."""
    return True


def committed(files: FileSystem) -> dict[str, list[str]]:
    return read_committed(files, "/out/rows")


def is_part_of_expected(rows: dict[str, list[str]]) -> bool:
    """Whether each partition holds rows of the undisturbed run only, and none twice."""
    return all(
        len(set(lines)) == len(lines) and set(lines) <= set(EXPECTED[partition]) for partition, lines in rows.items()
    )


@pytest.mark.parametrize(
    ("kept", "kill", "every"),
    [
        pytest.param("nothing", True, 4),
        pytest.param("nothing", True, 1, marks=pytest.mark.slow),
        pytest.param("some", False, 3),
        pytest.param("some", False, 1, marks=pytest.mark.slow),
        pytest.param("everything", False, 1, marks=pytest.mark.slow),
        pytest.param("everything", True, 1, marks=pytest.mark.slow),
        pytest.param("nothing", False, 1, marks=pytest.mark.slow),
        pytest.param("some", True, 1, marks=pytest.mark.slow),
    ],
)
def test_cut_at_every_call_and_resumed(kept: str, kill: bool, every: int) -> None:
    """Right after the cut no row is there twice, and after the resume each is there once."""
    calls = number_of_calls(resume=False, kill=kill)
    assert calls > 90
    with_rows = 0
    for call in range(1, calls + 1, every):
        survives = {"nothing": None, "some": some((call, kill)), "everything": everything}[kept]
        files = MemoryFileSystem()
        faulty = cut_at(files, call, survives, resume=False, kill=kill)
        assert faulty.struck, call

        before = committed(files)
        assert is_part_of_expected(before), (call, faulty.calls[-1])
        with_rows += bool(before)
        run(files, resume=True)

        assert committed(files) == EXPECTED, (call, faulty.calls[-1])
    assert with_rows > 20 // every


@pytest.mark.slow
@pytest.mark.parametrize("first_share", [0.35, 0.6, 0.85, 0.97])
def test_cut_again_at_every_call_of_the_resume(first_share: float) -> None:
    """The job also survives a second cut anywhere in the recovery from the first."""
    first = round(number_of_calls(resume=False) * first_share)
    reference = MemoryFileSystem()
    cut_at(reference, first, None, resume=False)
    counter = FaultInjectingFileSystem(reference)
    run(counter, resume=True)
    for call in range(1, len(counter.calls) + 1):
        files = MemoryFileSystem()
        cut_at(files, first, None, resume=False)
        cut_at(files, call, some((first, call)), resume=True)

        run(files, resume=True)

        assert committed(files) == EXPECTED, (first, call, counter.calls[call - 1])


def test_every_restart_of_the_directory_is_an_incarnation() -> None:
    """Cut three times, each start has a number of its own, so no name is used twice."""
    files = MemoryFileSystem()
    for call in (50, 60, 70):
        cut_at(files, call, None, resume=call > 50)

    with open_storage("/state", "power", file_system=files) as opened:
        assert opened.incarnation == 4
