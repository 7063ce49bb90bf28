"""The power is cut at each call to the file system of a run with incremental checkpoints, and the job is resumed.

Right after the cut every checkpoint that was announced is there and whole, whatever the disk has lost: its shared files
and those that earlier checkpoints wrote too. The resume starts from it or a newer one, and the output is that of an
undisturbed run.
"""

from __future__ import annotations

import functools
import posixpath
import random
from collections.abc import Callable
from typing import Any

import pytest

from engine.observe.trace_events import CheckpointCompleted, TraceEvent
from engine.runtime.execution import ExecutionResult
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.scenarios.recorded_runs import INCREMENTAL, check_files, committed, expected, run, storage_on

KILLS = [("everything[0]", 1_000_000)]
Survives = Callable[[str], bool]

undisturbed = functools.cache(expected)


class Announced:
    """An instrument that remembers the newest checkpoint that was said to be durable."""

    def __init__(self) -> None:
        self.newest = 0

    def __call__(self, event: TraceEvent) -> None:
        if isinstance(event, CheckpointCompleted):
            self.newest = event.checkpoint_id


def some(seed: object) -> Survives:
    """A disk on which some directories arrived and others did not: a rename in one arrives whole or not at all."""
    return lambda path: random.Random(f"{seed} {posixpath.dirname(path)}").random() < 0.5


def survivors(kept: str, seed: object) -> Survives | None:
    """The changes that were not made durable and still survive the cut."""
    return {"nothing": None, "some": some(seed), "everything": lambda path: True}[kept]


def cut(files: MemoryFileSystem, backend: str, call: int, survives: Survives | None, **how: Any) -> int:
    """Run until the power is cut right before a call; the newest checkpoint that was announced by then."""
    announced = Announced()
    faulty = FaultInjectingFileSystem(files, [FaultRule(FileFault.CRASH_BEFORE, at_call=call)])
    with pytest.raises(SimulatedCrashError):
        run(faulty, backend, instruments=[announced], **how)
    files.crash(survives)
    if announced.newest:
        storage_on(files).verify(announced.newest)
    return announced.newest


def resume(files: MemoryFileSystem, backend: str, announced: int, **how: Any) -> ExecutionResult:
    """Run the rest of the job, and check the end."""
    result = run(files, backend, resume=True, **how)
    first = result.restores[0]
    assert (first.checkpoint_id or 0) >= announced
    assert committed(files) == undisturbed()
    check_files(files)
    return result


@functools.cache
def number_of_calls(backend: str, **how: Any) -> int:
    """Of a run with a killed task."""
    files = FaultInjectingFileSystem(MemoryFileSystem())
    run(files, backend, kills=KILLS, **how)
    return len(files.calls)


def cut_and_resume(backend: str, call: int, kept: str, **how: Any) -> int:
    """One cut; returns the checkpoint that had been announced."""
    files = MemoryFileSystem()
    announced = cut(files, backend, call, survivors(kept, call), kills=KILLS, **how)
    resume(files, backend, announced, **how)
    return announced


@pytest.mark.parametrize(("backend", "kept"), [("lsm", "nothing"), ("changelog", "some")])
def test_cut_at_some_calls(backend: str, kept: str) -> None:
    """At every 41st call, from beginning to end."""
    announced = [cut_and_resume(backend, call, kept) for call in range(7, number_of_calls(backend), 41)]

    assert len(set(announced)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["nothing", "some", "everything"])
@pytest.mark.parametrize("backend", INCREMENTAL)
def test_cut_at_every_call(backend: str, kept: str) -> None:
    """Any call may be the last. (If the disk has kept more than it had to: every third.)"""
    every = 1 if kept == "nothing" else 3
    for call in range(1, number_of_calls(backend) + 1, every):
        cut_and_resume(backend, call, kept)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["nothing", "some"])
@pytest.mark.parametrize("backend", ["lsm", "changelog:lsm"])
def test_cut_at_calls_of_a_run_with_local_copies(backend: str, kept: str) -> None:
    """Copies beside the tasks are not made durable: half of one is noticed, and fetched from checkpoint storage."""
    for call in range(3, number_of_calls(backend, local_recovery=True), 7):
        cut_and_resume(backend, call, kept, local_recovery=True)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.9])
@pytest.mark.parametrize("backend", INCREMENTAL)
def test_cut_again_in_the_resume(backend: str, share: float) -> None:
    """Anywhere in the recovery from the first cut, and in the checkpoints that build on the files of the first run."""
    first = round(number_of_calls(backend) * share)
    reference = MemoryFileSystem()
    cut(reference, backend, first, None, kills=KILLS)
    counter = FaultInjectingFileSystem(reference)
    run(counter, backend, resume=True)
    for call in range(1, len(counter.calls) + 1, 5):
        files = MemoryFileSystem()
        announced = cut(files, backend, first, None, kills=KILLS)
        again = cut(files, backend, call, some((first, call)), resume=True)

        resume(files, backend, max(announced, again))
